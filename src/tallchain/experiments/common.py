"""What the experiments share."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata

Progress = Callable[[int, int, str], None]
"""Called as progress(done, total, what) before each piece of work and once at the end."""


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of this library, of Python and of the packages named, for a result file."""
    try:
        tallchain = metadata.version("tallchain")
    except metadata.PackageNotFoundError:  # run from a source tree that was not installed
        tallchain = "unknown"
    return {"tallchain": tallchain, "python": platform.python_version()} | {p: metadata.version(p) for p in packages}
