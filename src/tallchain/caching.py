"""Compiled programs that outlive the process."""

from __future__ import annotations

import os
from pathlib import Path

import jax

from tallchain.files import cache_folder


def cache_programs(folder: str | Path | None = None) -> Path | None:
    """Keep compiled programs in a folder, so that the next process does not compile them again.

    Call it once, before anything is compiled; it turns on JAX's persistent compilation cache for all programs of this
    process, short ones too. The `tallchain` command does so by itself. Importing tallchain changes no setting.

    Args:
        folder: where to keep them; None for a folder in the user's cache (`TALLCHAIN_CACHE`, else `XDG_CACHE_HOME`,
            else `~/.cache/tallchain`), unless JAX has one already (`JAX_COMPILATION_CACHE_DIR`), which it then keeps.

    Returns:
        The folder; None if there is none to be had, and nothing is kept.
    """
    if folder is None and (chosen := jax.config.values["jax_compilation_cache_dir"]):
        return Path(chosen)
    if folder is None:
        caches = cache_folder()
        if caches is None:
            return None
        folder = caches / "programs"
    folder = Path(folder).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder
