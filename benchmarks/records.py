"""Records of a run: a file of what was found and how, and tables made from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

import tallchain

PACKAGES = ("jax", "numpy", "scipy")


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found, in dictionaries, lists, numbers and strings, as JSON has them."""

    configuration: dict[str, Any]
    """How it was measured: sizes, seeds, and what the numbers mean."""
    versions: dict[str, str]
    backend: str
    """The kind of device it ran on."""
    results: Any

    @classmethod
    def of(cls, configuration: dict[str, Any], results: Any) -> Result:
        """Record a run on this machine; reading it back from a file gives an equal record."""
        versions = {"tallchain": tallchain.__version__} | {name: version(name) for name in PACKAGES}
        return cls(_plain(configuration), versions, jax.default_backend(), _plain(results))

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a file that `write` has made."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write a file, and make its folder if necessary."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(self) + "\n")

    def over(self, before: Result) -> Result:
        """Return this result together with what only an earlier one has, by the keys of its dictionaries."""
        return dataclasses.replace(self, results=_merged(before.results, self.results))

    def __str__(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples become lists, and keys strings."""
    return json.loads(json.dumps(value))


def _merged(before: Any, after: Any) -> Any:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    return before | {key: _merged(before.get(key), value) for key, value in after.items()}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
