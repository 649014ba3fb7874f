"""What determines the draws of a run, in words that can be compared: kernel, data, key, arguments, versions.

Arrays are told apart by type, shape and checksum; functions by name, instructions, and what they read from outside. Two
runs of the same description have the same draws.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import platform
import types
import zlib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random as jr

from tallchain.cores import num_cores
from tallchain.functions import Function

_PART = 2**26  # bytes of an array whose checksum one thread makes at a time
_DEEPEST = 12
_SHOWN = 4  # differences in a message
_LONGEST = 60  # characters of a value in a message

Description = dict[str, str]
"""Value by path, e.g. "kernel.proposal.scale"."""


def described(name: str, value: Any) -> Description:
    """Describe a value, a part or any nest of them."""
    found: Description = {}
    _describe(name, value, found, ())
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


def _describe(name: str, value: Any, found: Description, above: tuple[int, ...]) -> None:
    """Describe a value at a path; `above` are the objects that hold it, so that circles end."""
    if id(value) in above or len(above) > _DEEPEST:
        return
    inner = (*above, id(value))
    if isinstance(value, Function):
        _describe(name, value.function, found, inner)
    elif isinstance(value, jax.Array | np.ndarray | np.generic):
        found[name] = _of_array(value)
    elif isinstance(value, functools.partial | types.MethodType | types.FunctionType):
        _of_function(name, value, found, inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        found[name] = type(value).__qualname__
        for field in dataclasses.fields(value):
            _describe(f"{name}.{field.name}", getattr(value, field.name, None), found, inner)
    elif isinstance(value, dict):
        found[name] = f"dict of {len(value)}"
        for key, of in value.items():
            _describe(f"{name}[{key!r}]", of, found, inner)
    elif isinstance(value, list | tuple):
        found[name] = f"{type(value).__name__} of {len(value)}"
        names = getattr(value, "_fields", None)
        for i, of in enumerate(value):
            _describe(f"{name}.{names[i]}" if names else f"{name}[{i}]", of, found, inner)
    else:
        _of_other(name, value, found, inner)


def _of_other(name: str, value: Any, found: Description, above: tuple[int, ...]) -> None:
    """Numbers, text and None as they are; classes and what is built in by name; other objects by their fields."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        found[name] = repr(value)
    elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType) or not hasattr(value, "__dict__"):
        called = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        found[name] = called or type(value).__qualname__
    elif isinstance(said := getattr(value, "identity", None), str):
        found[name] = said
    elif hasattr(value, "__wrapped__"):  # by jax.jit and the like
        _describe(name, value.__wrapped__, found, above)
    else:
        found[name] = type(value).__qualname__
        for field, of in vars(value).items():
            _describe(f"{name}.{field}", of, found, above)


def _of_function(name: str, function: Any, found: Description, above: tuple[int, ...]) -> None:
    """Take apart what is made of another function."""
    if isinstance(function, types.FunctionType):
        _of_plain_function(name, function, found, above)
        return
    parts = {"function": getattr(function, "func", None) or function.__func__}
    if isinstance(function, types.MethodType):
        parts |= {"self": function.__self__}
    else:
        parts |= {"arguments": function.args, "names": function.keywords}
    for part, of in parts.items():
        _describe(f"{name}.{part}", of, found, above)


def _of_plain_function(name: str, function: types.FunctionType, found: Description, above: tuple[int, ...]) -> None:
    """By its instructions and what it reads: constants, defaults, enclosing variables, and globals that are data."""
    found[name] = f"{function.__qualname__} {_hash_of_code(function.__code__)}"
    _describe(f"{name}.defaults", function.__defaults__ or (), found, above)
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            _describe(f"{name}.{variable}", cell.cell_contents, found, above)
        except ValueError:  # not filled yet
            found[f"{name}.{variable}"] = "empty"
    if function.__module__.partition(".")[0] in ("tallchain", "jax", "numpy"):
        return  # their versions are compared
    for variable in _names_in(function.__code__):
        if variable in function.__globals__:
            of = function.__globals__[variable]
            if isinstance(of, bool | int | float | str | np.ndarray | np.generic | jax.Array | types.FunctionType):
                _describe(f"{name}.{variable}", of, found, above)


def _names_in(code: types.CodeType) -> list[str]:
    inner = [name for const in code.co_consts if isinstance(const, types.CodeType) for name in _names_in(const)]
    return list(dict.fromkeys((*code.co_names, *inner)))


def _hash_of_code(code: types.CodeType) -> str:
    total = hashlib.blake2b(digest_size=8)

    def add(code: types.CodeType) -> None:
        total.update(code.co_code)
        total.update(repr((code.co_names, code.co_varnames)).encode())
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                add(const)
            else:
                total.update((repr(sorted(map(repr, const))) if isinstance(const, frozenset) else repr(const)).encode())

    add(code)
    return total.hexdigest()


def _of_array(array: Any) -> str:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jr.key_data(array)
    found = np.asarray(array)
    if found.dtype == object:
        return repr(found.tolist())
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
