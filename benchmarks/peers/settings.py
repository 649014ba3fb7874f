"""The samplers by name, and which of them can run here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import tallchain as tc
from benchmarks.peers.ours import Ours
from benchmarks.peers.problem import Sampler

SUBSAMPLE = 1000  # rows, of HMCECS


class Setting(NamedTuple):
    """A sampler by name."""

    make: Callable[..., Sampler]
    """(problem, chains, warmup)."""
    chains: tuple[int, ...]
    """Numbers of chains to choose from."""
    needs: str | None = None
    """A package."""
    is_ours: bool = False


def _ours(**options: Any) -> Setting:
    return Setting(partial(Ours, **options), (256, 512, 1024), is_ours=True)


def _peer(package: str, name: str, chains: tuple[int, ...], **options: Any) -> Setting:
    """Import only when it is made, so that a missing package is not an error."""

    def make(*args: Any) -> Sampler:
        return getattr(import_module(f"benchmarks.peers.{package.lower()}"), name)(*args, **options)

    return Setting(make, chains, package)


SETTINGS: dict[str, Setting] = {
    "tallchain": _ours(),
    "tallchain, MHSS": _ours(acceptance=tc.MHSS),
    "tallchain, Penalty": _ours(acceptance=tc.Penalty),
    "tallchain, own functions": _ours(is_generic=True),
    "tallchain, MinibatchBarker": _ours(acceptance=tc.MinibatchBarker),
    "tallchain, order 1": _ours(orders=(1,)),
    "tallchain, order 1, walk, MinibatchBarker(1.2)": _ours(
        orders=(1,), is_walking=True, acceptance=partial(tc.MinibatchBarker, 1.2)
    ),
    "BlackJAX walk": _peer("blackjax", "RandomWalkMetropolis", (1, 4, 16)),
    "BlackJAX NUTS": _peer("blackjax", "Nuts", (1, 4, 16)),
    "BlackJAX NUTS, dense": _peer("blackjax", "Nuts", (1, 4, 16), is_diagonal=False),
    "BlackJAX NUTS, told the covariance": _peer("blackjax", "ToldNuts", (1, 4, 16)),
    "NumPyro NUTS": _peer("numpyro", "NumPyro", (1, 4)),
    "NumPyro HMCECS": _peer("numpyro", "NumPyro", (1, 4, 16), subsample=SUBSAMPLE),
    "PyMHSS": _peer("PyMHSS", "Mhss", (1,)),
}


def missing(setting: Setting) -> str | None:
    """Say which package is missing, if one is."""
    if setting.needs is None or find_spec(setting.needs) is not None:
        return None
    return f"{setting.needs} is not installed: pip install {setting.needs.lower()}"
