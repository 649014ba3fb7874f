"""The plan of the house: which part may know which, typing and lazy imports included; and no cycles."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# Each room may know the rooms of the lines above it, and those alone; rooms of one line do not know each other.
PLAN = [
    {
        "types": (
            "arrays",
            "cores",
            "functions",
            "parts",
            "validation",
            "types",
            "keys",
            "threefry",
            "names",
            "coordinates",
            "files",
            "caching",
            "frames",
            "checks",
            "residuals",
            "abilities",
        )
    },
    {"host": ("crew", "joining", "progress", "interrupts", "memory", "command")},
    {name: (name,) for name in ("models", "proposals", "sources", "acceptance", "datasets", "tables")},
    {name: (name,) for name in ("surrogates", "bounds", "formulas")},
    {"packs": ("packs",)},
    {"kernel": ("kernel", "assembly", "firefly", "stochastic", "schedule", "settings")},
    {"lockstep": ("lockstep", "runner", "machines", "census", "packing", "chunks", "digest", "mixing")},
    {"checking": ("checking",)},
    {"checkpoints": ("checkpoints",)},
    {"sample": ("sample", "ending", "resuming", "processes", "rounds", "starts", "warmup", "tuning")},
    {"prepare": ("prepare", "prepared", "weighing", "growth", "room")},
    {"plots": ("plots",)},
    {"report": ("report",)},
    {"fitting": ("fitting",)},
    {"bridges": ("bridges",)},
    {"tallchain": ("__init__",)},
    {"experiments": ("experiments", "pictures")},
    {"cli": ("cli", "fit_commands", "pack_command", "launch_command", "reproduce", "__main__")},
]
LEVEL = {room: level for level, rooms in enumerate(PLAN) for room in rooms}
ROOM = {module: room for rooms in PLAN for room, modules in rooms.items() for module in modules}


def modules() -> dict[str, Path]:
    found = {}
    for path in (SOURCE / "tallchain").rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(tree: ast.AST, known: set[str]) -> set[str]:
    """All modules of the package that a file imports, wherever in the file it does."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return found & known


def room_of(module: str) -> str:
    return ROOM[module.split(".")[1] if "." in module else "__init__"]


def is_allowed(here: str, there: str) -> bool:
    here, there = room_of(here), room_of(there)
    return here == there or LEVEL[there] < LEVEL[here]


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    found = modules()
    return {name: imports_of(ast.parse(path.read_text()), set(found)) for name, path in found.items()}


def test_every_module_has_a_room() -> None:
    assert {room_of(module) for module in modules()} <= set(LEVEL)


def test_no_arrow_that_the_plan_does_not_have(arrows: dict[str, set[str]]) -> None:
    wrong = [f"{here} -> {there}" for here, all_ in arrows.items() for there in all_ if not is_allowed(here, there)]
    assert wrong == []


def test_no_cycles(arrows: dict[str, set[str]]) -> None:
    """A package and what it holds count as apart: `__init__` only hands on."""
    try:
        TopologicalSorter({here: all_ - {here} for here, all_ in arrows.items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_check_sees_typing_and_lazy_imports() -> None:
    text = """
if TYPE_CHECKING:
    from tallchain.kernel import MetropolisHastings
def f():
    from tallchain import sample
"""
    found = imports_of(ast.parse(text), set(modules()))
    assert found == {"tallchain.kernel", "tallchain.sample"}
    assert not is_allowed("tallchain.sources.rows", "tallchain.kernel")
    assert not is_allowed("tallchain.sources.rows", "tallchain.models.design")
    assert is_allowed("tallchain.sample", "tallchain.checking.trace")


def test_no_file_is_long() -> None:
    root = SOURCE.parent
    folders = [folder for name in ("src", "tests", "benchmarks", "studies") if (folder := root / name).exists()]
    lengths = {path: len(path.read_text().splitlines()) for folder in folders for path in folder.rglob("*.py")}
    assert {str(path.relative_to(root)): length for path, length in lengths.items() if length > 400} == {}
