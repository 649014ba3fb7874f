"""What determines the draws of a run, in words that can be compared: kernel, data, key, arguments, versions.

Arrays are told apart by type, shape and checksum; functions and classes of the user by their instructions, and what
they read from outside (see `reading`); those of an installed package by name and version. Two runs of the same
description have the same draws.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import platform
import re
import types
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.checkpoints.reading import hash_of_code, is_installed, members, origin, outside
from tallchain.cores import num_cores
from tallchain.functions import Function

_PART = 2**26  # bytes of an array whose checksum one thread makes at a time
_SHOWN = 4  # differences in a message
_LONGEST, _LONGEST_QUOTE = 60, 500  # characters of a value: in a message, and in a description

_CONTAINERS = Mapping | list | tuple | collections.deque

Description = dict[str, str]
"""Value by path, e.g. "kernel.proposal.scale"."""


def described(name: str, value: Any) -> Description:
    """Describe a value, a part or any nest of them."""
    found: Description = {}
    _describe(name, value, found, {}, ())
    return found


def versions() -> Description:
    """What programs depend on."""
    packages = {name: version(name) for name in ("jax", "jaxlib", "numpy")}
    return packages | {
        "tallchain": _own_version(),
        "python": platform.python_version().rpartition(".")[0],
        "machine": platform.machine(),
        "backend": f"{jax.default_backend()}, {jax.devices()[0].device_kind}",
        "64 bits": str(bool(jax.config.read("jax_enable_x64"))),
    }


def _own_version() -> str:
    try:
        return version("tallchain")
    except Exception:  # from a folder of sources that was not installed
        return "unknown"


def differences(there: Description, here: Description) -> list[str]:
    """Say what differs, the first few."""
    names = [name for name in dict.fromkeys((*there, *here)) if there.get(name) != here.get(name)]
    said = [
        f"{name}: {_brief(there.get(name, 'none'))} in the checkpoint, {_brief(here.get(name, 'none'))} in this call"
        for name in islice(names, _SHOWN)
    ]
    return said + ([f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])


def _brief(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


Parts = Mapping[str, Any]
"""What a value consists of, by what is added to its path."""


def _describe(name: str, value: Any, found: Description, seen: dict[int, Any], above: tuple[int, ...]) -> None:
    """Describe a value at a path.

    Functions, classes and objects are taken apart where they are met first: `seen` has them. Containers may be made
    again from call to call, so each is taken apart, unless it is in itself: `above` has those that hold this one.
    """
    if isinstance(value, Function):
        value = value.function
    found[name], parts = _taken_apart(value)
    if not parts or id(value) in seen or id(value) in above:
        return
    if not isinstance(value, _CONTAINERS) and not dataclasses.is_dataclass(value):
        seen[id(value)] = value
    for suffix, of in parts.items():
        _describe(f"{name}{suffix}", of, found, seen, (*above, id(value)))


def _taken_apart(value: Any) -> tuple[str, Parts]:
    """Return one line on a value, and its parts."""
    kind, parts = type(value), {}
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        line = _of_array(value)
    elif isinstance(value, set | frozenset):
        line = f"{kind.__name__} {sorted(map(_quoted, value))}"
    elif isinstance(value, types.ModuleType):
        line = origin(value.__name__)
    elif isinstance(value, type):
        line, parts = value.__qualname__, {} if is_installed(value.__module__) else members(value)
    elif isinstance(value, types.FunctionType):
        version = f", {origin(value.__module__)}" if is_installed(value.__module__) else ""
        line, parts = f"{value.__qualname__} {hash_of_code(value.__code__)}{version}", outside(value)
    elif isinstance(said := getattr(value, "identity", None), str):  # of what reads files, wherever they are
        line = said
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | enum.Enum):
        line = _quoted(value)
    else:
        parts = _parts_of(value)
        line = f"{kind.__qualname__} of {len(value)}" if isinstance(value, _CONTAINERS) else kind.__qualname__
        if not parts and not isinstance(value, _CONTAINERS):
            line = _quoted(value)
        if not is_installed(kind.__module__):
            parts = {".class": kind} | parts
    return line, parts


def _parts_of(value: Any) -> dict[str, Any]:
    """What an object holds; nothing, if it does not say."""
    if isinstance(value, functools.partial):
        found = {".function": value.func, ".arguments": value.args, ".names": value.keywords}
    elif isinstance(value, types.MethodType):
        found = {".function": value.__func__, ".self": value.__self__}
    elif dataclasses.is_dataclass(value):
        found = {f".{each.name}": getattr(value, each.name, None) for each in dataclasses.fields(value)}
    elif isinstance(value, Mapping):
        found = {f"[{_quoted(key)}]": of for key, of in value.items()}
    elif isinstance(value, _CONTAINERS):
        names = getattr(value, "_fields", None)
        found = {f".{names[i]}" if names else f"[{i}]": of for i, of in enumerate(value)}
    elif hasattr(value, "__wrapped__"):  # by jax.jit and the like
        found = {"": value.__wrapped__}
    else:
        slots = [name for base in type(value).__mro__ for name in _slots_of(base) if hasattr(value, name)]
        found = {f".{name}": getattr(value, name) for name in slots}
        found |= {f".{name}": of for name, of in getattr(value, "__dict__", {}).items()}
    return found


def _slots_of(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _quoted(value: Any) -> str:
    """As Python writes it, without where it is in memory; what is long by its checksum."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST]} {zlib.crc32(text.encode()):08x}"


def _of_array(array: Any) -> str:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jr.key_data(array)
    found = np.asarray(array)
    if found.dtype == object:
        return _quoted(found.tolist())
    if found.size == 1 and found.ndim == 0:
        return f"{found.dtype} {found}"
    return f"{found.dtype}{list(found.shape)} {checksum(found)}"


def checksum(array: np.ndarray) -> str:
    """Checksum of the numbers of an array; of a large one on all cores."""
    numbers = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    parts = [numbers[at : at + _PART] for at in range(0, len(numbers), _PART)]
    if len(parts) == 1:
        return f"{zlib.crc32(parts[0].data):08x}"
    with ThreadPoolExecutor(num_cores()) as threads:
        each = list(threads.map(lambda part: zlib.crc32(part.data), parts))
    return f"{zlib.crc32(np.array(each, np.uint32).tobytes()):08x}"
