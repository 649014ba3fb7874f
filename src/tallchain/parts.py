"""Parts: frozen dataclasses that are pytrees. Arrays are leaves; functions, sizes and names belong to the structure."""

from __future__ import annotations

import dataclasses
import inspect
import weakref
from typing import Any, TypeVar, dataclass_transform

import jax

from tallchain.functions import Handle, Handled

T = TypeVar("T")
_REGISTERED: weakref.WeakSet[type] = weakref.WeakSet()


def static(default: Any = dataclasses.MISSING) -> Any:
    """Mark a field of a `part` as static: a function, a size or a name, not an array."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def part(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree; fields marked `static()` belong to its structure.

    Constructors check and prepare what the user gave them; JAX rebuilds parts with tracers inside. So rebuilding skips
    the constructor, unlike with `jax.tree_util.register_dataclass`. A part that adds no field to the part it inherits
    from keeps its constructor.
    """
    adds = inspect.get_annotations(cls) or "__post_init__" in vars(cls)
    is_alike = not adds and any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
    return registered(dataclasses.dataclass(frozen=True, eq=False, init=not is_alike)(cls))


def registered(cls: type[T]) -> type[T]:
    """Make a dataclass a pytree, as `part` does, and leave all else as it is: equal values may be equal."""
    fields = dataclasses.fields(cls)  # ty: ignore[invalid-argument-type]
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    statics = [f.name for f in fields if f.metadata.get("static")]

    def flatten_with_keys(self: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in leaves]
        structure = (getattr(self, name) for name in statics)
        return children, tuple(value.handle if isinstance(value, Handled) else value for value in structure)

    def unflatten(structure: tuple[Any, ...], children: Any) -> T:
        fixed = (value.get() if isinstance(value, Handle) else value for value in structure)
        values = zip([*statics, *leaves], [*fixed, *children], strict=True)
        return set_fields(object.__new__(cls), **dict(values))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
    _REGISTERED.add(cls)
    return cls


def is_part(value: Any) -> bool:
    """Whether this is a part: its arrays are leaves, and no constant of a program."""
    return type(value) in _REGISTERED


def check_registered(call: str, value: Any) -> None:
    """Refuse an object of a class that inherits from a part and is not one itself: JAX would not see its arrays."""
    kind = type(value)
    if dataclasses.is_dataclass(kind) and jax.tree_util.all_leaves([value]):
        raise TypeError(
            f"`{call}` got a {kind.__name__}, whose class is not a part: JAX does not see its arrays. Write `@part` "
            f"above `class {kind.__name__}`, after `from tallchain.parts import part`."
        )


def replace(of: T, /, **changes: Any) -> T:
    """Return a copy of a part with some fields changed, unchecked: values may be tracers."""
    return set_fields(object.__new__(type(of)), **vars(of) | changes)


def set_fields(of: T, /, **values: Any) -> T:
    """Fill the fields of a part under construction; parts are frozen once their constructor is done."""
    for name, value in values.items():
        object.__setattr__(of, name, value)
    return of
