"""What a function does, in words that can be compared: its instructions, and what it reads from outside."""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_GLOBAL, _ATTRIBUTE = ("LOAD_GLOBAL", "LOAD_NAME"), ("LOAD_ATTR", "LOAD_METHOD")
_NOTHING = object()
_FUNCTIONS = types.FunctionType | staticmethod | classmethod | functools.cached_property
_OF_TUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}  # made for every NamedTuple
_PLAIN = bool | int | float | complex | str | bytes | tuple | frozenset


def outside(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function reads, by path: defaults, enclosing variables, and globals unless it is installed."""
    found: dict[str, Any] = {}
    if function.__defaults__ or function.__kwdefaults__:
        found = {".defaults": function.__defaults__, ".named": function.__kwdefaults__}
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[f".{variable}"] = cell.cell_contents
        except ValueError:  # not filled yet
            found[f".{variable}"] = "empty"
    if not is_installed(function.__module__):
        found |= {f".{name}": of for name, of in _globals(function)}
    return found


def _globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What it reads by name: a global, or a member of the user's module that a global is."""
    for code in _codes(function.__code__):
        name, value = "", _NOTHING
        for each in dis.get_instructions(code):
            if each.opname in _ATTRIBUTE and isinstance(value, types.ModuleType) and not is_installed(value.__name__):
                name, value = f"{name}.{each.argval}", getattr(value, each.argval, _NOTHING)
                continue
            if value is not _NOTHING:
                yield name, value
            is_global = each.opname in _GLOBAL
            name, value = each.argval, function.__globals__.get(each.argval, _NOTHING) if is_global else _NOTHING
        if value is not _NOTHING:
            yield name, value


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code, and those of the functions within it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def members(kind: type) -> dict[str, Any]:
    """Return what objects of a user's class may run, and its constants; not what may change while it runs."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name, of in ({} if is_installed(base.__module__) else vars(base)).items():
            if (name.startswith("__") and name != "__call__") or name in _OF_TUPLES:
                continue
            if isinstance(of, property):
                found[f".{name}"] = of.fget
            elif isinstance(of, _FUNCTIONS | _PLAIN) or hasattr(of, "__wrapped__"):
                found[f".{name}"] = of
    return found


def hash_of_code(code: types.CodeType) -> str:
    """Hash of the instructions of a function."""
    total = hashlib.blake2b(digest_size=8)
    for each in _codes(code):
        total.update(each.co_code)
        total.update(repr((each.co_names, each.co_varnames)).encode())
        for const in each.co_consts:
            if not isinstance(const, types.CodeType):
                total.update((repr(sorted(map(repr, const))) if isinstance(const, frozenset) else repr(const)).encode())
    return total.hexdigest()


@functools.cache
def is_installed(module: str | None) -> bool:
    """Whether a module is of Python, of this library or of an installed package: then its version says what it does."""
    package = (module or "").partition(".")[0]
    if package == "tallchain" or package in sys.stdlib_module_names or package in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is not None and bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def origin(module: str) -> str:
    """Return the name of a module, and the version of its package if it says so."""
    said = getattr(sys.modules.get(module.partition(".")[0]), "__version__", "")
    return f"{module} {said}".strip()
