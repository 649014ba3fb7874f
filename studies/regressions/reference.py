"""Long runs of NumPyro's NUTS on ALL rows, in float64, as the answers to compare with.

`PYTHONPATH=src:. python3 -m studies.regressions.reference FILE [NAME...]` takes 40 to 150 seconds for each model on an
H200. The log likelihood is summed over every row at every step; no surrogate has a part in it. Only the coordinates in
which NUTS runs come from one: those of `Conditional`, of `Shrunk`, or of the normal approximation at the mode, with the
Jacobian of the map. So any of them is right, and in these NUTS mixes well.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from studies.regressions.draws import chosen, compared, moments, round_all
from studies.regressions.models import SEED, SETTINGS, digest, make
from studies.regressions.shrunk import Shrunk, shrunk
from tallchain.models import Regression
from tallchain.proposals.coordinates import Coordinates, Whitened
from tallchain.sources import Shuffled
from tallchain.surrogates import Predictors, find_reference
from tallchain.surrogates.bulk import find_bulk, has_no_mode
from tallchain.surrogates.conditional import Conditional
from tallchain.types import Array, PyTree

_BLOCK = 2**27  # coordinates to map back at a time


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of a run."""

    chains: int = 64
    warmup: int = 100
    draws: int = 150
    step_size: float | None = None
    """None adapts it, each chain for itself; all wait for the chain that takes the most steps."""
    depth: int = 8
    """Doublings of a tree, at most: a way of about 2 in all coordinates makes squares independent, too."""
    spread: float = 1.0
    """Of the starts, in all coordinates."""


# Steps of NUTS on few rows take the same time for 32 chains as for 128. A gradient of the negative binomial is slow.
SIZES = {
    "logistic_10000": Sizes(64, 30, 150, step_size=0.16, depth=4),
    "negative_binomial": Sizes(32, 30, 250, step_size=0.33, depth=3),
    "weibull": Sizes(128, 100, 120),
    "ordinal": Sizes(128, 100, 120),
    "softmax": Sizes(128, 100, 120),
    "small_sd": Sizes(128, 100, 250),
    "horseshoe": Sizes(128, 50, 150, step_size=0.15, spread=0.3),
}


def sample(name: str, rows: int | None = None, sizes: Sizes | None = None, seed: int = SEED) -> dict[str, Any]:
    """Run NUTS on a model, and return moments of what is compared."""
    sizes, began = sizes or SIZES.get(name, Sizes()), time.perf_counter()
    model = make(name, rows)
    data = {key: _wide(values) for key, values in model.data.items()}
    coordinates = coordinates_of(model)
    prepared = time.perf_counter()
    key_of_starts, key = jax.random.split(jax.random.key(seed))
    starts = sizes.spread * jax.random.normal(key_of_starts, (sizes.chains, _size(coordinates, model.start)))
    chain = _chains(model, starts, sizes)
    extra = ("diverging", "accept_prob", "num_steps", "adapt_state.step_size")
    chain.run(key, coordinates, data, init_params={"w": starts}, extra_fields=extra)
    w, fields = chain.get_samples(group_by_chain=True)["w"], chain.get_extra_fields(group_by_chain=True)
    places = compared(model)
    draws = _back(coordinates, w, places)
    found = {at: {"place": places[at].tolist()} | moments(values) for at, values in draws.items()}
    return {
        "rows": len(model.data["y"]),
        "parameters": int(w.shape[-1]),
        "digest": digest(model),
        **dataclasses.asdict(sizes),
        "seconds": {"preparing": prepared - began, "all": time.perf_counter() - began},
        "diverging": int(np.sum(fields["diverging"])),
        "acceptance": float(np.mean(fields["accept_prob"])),
        "steps": float(np.mean(fields["num_steps"])),
        "step_size": float(np.mean(fields["adapt_state.step_size"])),
        **summary(found),
        "moments": found,
    }


def summary(found: dict[str, Any]) -> dict[str, float]:
    """Say how long a run was, for the parameter for which it was the shortest."""
    least, largest = min(min(of["ess"]) for of in found.values()), max(max(of["sd_error"]) for of in found.values())
    return {"least_ess": least, "largest_sd_error": largest}


def coordinates_of(model: Regression) -> Coordinates:
    """Return coordinates in which the posterior is nearly standard normal."""
    if model.layout.hyper:
        return shrunk(model)
    source = Shuffled(model.data, 50)
    if not has_no_mode(model.posterior):
        return Whitened(find_reference(model.posterior, source, model.start, progress=False).laplace)
    bulk = find_bulk(model.posterior, source, model.start)
    return Conditional(model.posterior, Predictors(model.posterior, source, bulk.position, sums=bulk.sums))


def log_density(model: Regression, coordinates: Coordinates, data: PyTree, w: Array) -> Array:
    """log of the density of w: prior, the log likelihood of every row, and |dt/dw|."""
    position = coordinates.back(w)
    each_row = jax.vmap(model.posterior.log_likelihood, (None, 0))(position, data)
    likelihood = jnp.sum(each_row) / model.posterior.temperature
    return model.posterior.log_prior(position) + likelihood + coordinates.log_det(w)


def _chains(model: Regression, starts: Array, sizes: Sizes) -> Any:
    import numpyro  # ty: ignore[import-not-found]
    import numpyro.distributions as dist  # ty: ignore[import-not-found]
    from numpyro.infer import MCMC, NUTS  # ty: ignore[import-not-found]

    flat = dist.ImproperUniform(dist.constraints.real_vector, (), starts.shape[1:])

    def target(coordinates: Coordinates, data: PyTree) -> None:
        w = numpyro.sample("w", flat)
        numpyro.factor("density", log_density(model, coordinates, data, jnp.asarray(w)))

    options: dict[str, Any] = {"adapt_mass_matrix": False, "max_tree_depth": sizes.depth}
    if sizes.step_size is not None:
        options |= {"step_size": sizes.step_size, "adapt_step_size": False}
    return MCMC(
        NUTS(target, **options),
        num_warmup=sizes.warmup,
        num_samples=sizes.draws,
        num_chains=sizes.chains,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )


def _size(coordinates: Coordinates, start: PyTree) -> int:
    return (
        coordinates.size if isinstance(coordinates, Conditional | Shrunk) else sum(map(np.size, jax.tree.leaves(start)))
    )


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) if np.issubdtype(values.dtype, np.floating) else values


def _back(coordinates: Coordinates, w: Array, places: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what is compared, from draws of w (chain, draw, coordinate); some chains at a time."""
    many = jax.jit(jax.vmap(jax.vmap(partial(type(coordinates).back, coordinates))))
    width = max(1, _BLOCK // (w.shape[1] * w.shape[2]))
    parts = [chosen(many(w[at : at + width]), places) for at in range(0, len(w), width)]
    return {name: np.concatenate([part[name] for part in parts]) for name in places}


def pooled(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of two runs together, each number weighted by its precision."""
    both = {}
    for name, of in found["moments"].items():
        one, other = ({key: np.array(values) for key, values in run.items()} for run in (before["moments"][name], of))
        both[name] = {"place": of["place"], "ess": (one["ess"] + other["ess"]).tolist()}
        for what in ("mean", "sd"):
            weights = [run[f"{what}_error"] ** -2.0 for run in (one, other)]
            value = np.average([one[what], other[what]], axis=0, weights=weights)
            error = np.sum(weights, 0) ** -0.5
            both[name] |= {what: round_all(value), f"{what}_error": round_all(error)}
    earlier = [*before.get("earlier", []), {key: of for key, of in before.items() if key not in ("moments", "earlier")}]
    return found | summary(both) | {"earlier": earlier, "moments": both}


def main() -> None:
    """Run NUTS on some models, and add the answers to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--more", action="store_true", help="pool a run with the one in the file")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SETTINGS)}; all by default")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    results = json.loads(given.path.read_text()) if given.path.exists() else {}
    for name in given.names or SETTINGS:
        before = results.get(name) if given.more else None
        found = sample(name, seed=SEED + len(before.get("earlier", [])) + 1 if before else SEED)
        results[name] = pooled(before, found) if before else found
        given.path.write_text(json.dumps(results, indent=1) + "\n")
        print(name, {key: value for key, value in results[name].items() if key != "moments"}, flush=True)


if __name__ == "__main__":
    main()
