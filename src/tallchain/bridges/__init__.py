"""Ways to and from other libraries; each module, with its library, is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallchain.bridges import blackjax, numpyro

__all__ = ["blackjax", "numpyro"]


def __getattr__(name: str) -> Any:
    """Import a bridge."""
    if name not in __all__:
        raise AttributeError(f"module 'tallchain.bridges' has no attribute {name!r}")
    return import_module(f"tallchain.bridges.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
