"""What a NumPyro model is made of, from its shapes alone; and models that have no rows are refused, with the remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import init_to_feasible
from numpyro.primitives import Messenger

Model = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
NO_NUMPY = (
    "Use `jax.numpy` in place of NumPy in the model, `jnp.asarray(x)[i]` for an `x` that is no argument, and give it "
    "sizes, such as the number of groups, as whole numbers."
)


@dataclasses.dataclass(frozen=True)
class Structure:
    """The sites of a model, and the plate whose entries are rows."""

    plate: str
    num_rows: int
    has_indices: bool
    """Whether the plate takes a part of its entries, so that the model takes data by its indices."""
    latent: dict[str, tuple[int, ...]]
    """Shapes of the latent sites, constrained, in the order of the model."""
    unconstrained: dict[str, tuple[int, ...]]
    """Shapes of them without constraints."""
    deterministic: tuple[str, ...]
    """Outside of the plate."""


def structure_of(call: str, model: Model, arguments: Arguments) -> Structure:
    """Trace the shapes of a model; `call` is quoted in errors."""
    found: list[Structure] = []
    somewhere = handlers.substitute(handlers.seed(model, rng_seed=0), substitute_fn=init_to_feasible())
    leaves, structure = jax.tree.flatten(arguments)
    arrays = {at: leaf for at, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray | jax.Array) and leaf.ndim}

    def run(arrays: dict[int, Any]) -> None:
        args, kwargs = jax.tree.unflatten(structure, [arrays.get(at, leaf) for at, leaf in enumerate(leaves)])
        found.append(_structure(call, handlers.trace(_PlainLoops(call, somewhere)).get_trace(*args, **kwargs)))

    try:
        try:
            jax.eval_shape(run, arrays)
        except jax.errors.JAXTypeError:  # it looks at the numbers in some array
            jax.eval_shape(run, {})
    except jax.errors.JAXTypeError as error:
        remedy = NO_NUMPY if is_of_numpy(error) else "Write `jnp.where` for an `if` that depends on latent sites."
        raise ValueError(f"`{call}`: the model cannot be traced: {first_line(error)}. {remedy}") from error
    return found[0]


class _PlainLoops(Messenger):
    """Refuses NumPyro's control flow, whose sites have values only while it runs."""

    def __init__(self, call: str, model: Model) -> None:
        super().__init__(model)
        self._call = call

    def process_message(self, msg: Any) -> None:
        """Refuse a message of a loop or a branch."""
        if msg["type"] == "control_flow":
            raise ValueError(
                f"`{self._call}`: this bridge does not have `scan` and `cond` of `numpyro.contrib.control_flow`. "
                "Sample all sites before, as vectors, and use `jax.lax.scan`, `jax.lax.cond`, or a plain loop."
            )


def is_of_numpy(error: Exception) -> bool:
    """Whether a model gave NumPy what is known only while a program runs."""
    return isinstance(error, jax.errors.TracerArrayConversionError)


def first_line(error: Exception) -> str:
    """Return what an error of a model says, shortly."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _structure(call: str, found: Any) -> Structure:
    sites = {name: site for name, site in found.items() if site["type"] == "sample"}
    plates = {name: site for name, site in found.items() if site["type"] == "plate"}
    latent = {name: site for name, site in sites.items() if not site["is_observed"]}
    observed = {name: site for name, site in sites.items() if site["is_observed"]}
    _check_sites(call, latent, found)
    plate = _row_plate(call, latent, observed, plates)
    _check_plates(call, plate, latent, plates)
    size, part = plates[plate]["args"]
    outside = (name for name, site in found.items() if site["type"] == "deterministic" and plate not in plates_of(site))
    return Structure(
        plate,
        int(size),
        part is not None and part != size,
        {name: tuple(site["fn"].shape()) for name, site in latent.items()},
        {name: _unconstrained_shape(site) for name, site in latent.items()},
        tuple(outside),
    )


def plates_of(site: Any) -> list[str]:
    """Name the plates around a site."""
    return [frame.name for frame in site["cond_indep_stack"]]


def _unconstrained_shape(site: Any) -> tuple[int, ...]:
    return tuple(biject_to(site["fn"].support).inverse_shape(site["fn"].shape()))


def _check_sites(call: str, latent: dict[str, Any], found: dict[str, Any]) -> None:
    if not latent:
        raise ValueError(f"`{call}`: the model has no latent site, so there is nothing to infer.")
    for name, site in found.items():
        if site["type"] in ("param", "mutable"):
            raise ValueError(
                f'`{call}`: "{name}" is a {site["type"]} site, which this bridge does not have. Write '
                "`numpyro.sample` with a prior."
            )
    for name, site in latent.items():
        if site["fn"].support.is_discrete:
            raise ValueError(
                f'`{call}`: the latent site "{name}" is discrete, and steps need derivatives. Sum it out: with '
                "`dist.MixtureSameFamily` and the like, or a `numpyro.factor` of the logsumexp."
            )


def _row_plate(call: str, latent: dict[str, Any], observed: dict[str, Any], plates: dict[str, Any]) -> str:
    """Return the one plate that has observed sites: its entries are the rows."""
    around = {name: plates_of(site) for name, site in observed.items() if plates_of(site)}
    if not around:
        have = f"Its plates, {', '.join(plates)}, have no observed sites. " if plates else "It has no plate. "
        within = [name for name, site in latent.items() if plates_of(site)]
        outcome = f' If "{within[-1]}" is the outcome, the model was not given its data, `obs`.' if within else ""
        raise ValueError(
            f"`{call}`: nothing is observed in a plate, so that the model has no rows. {have}Put the observed site "
            f'into `with numpyro.plate("rows", N):`.{outcome}'
        )
    for name, names in around.items():
        if len(names) > 1:
            raise ValueError(
                f'`{call}`: the observed site "{name}" is in nested plates, {", ".join(names)}, and a row is an entry '
                "of ONE. Keep the plate of the rows, and make the others dimensions of the event: "
                "`dist.Normal(...).to_event(1)`."
            )
    rows = {names[0]: name for name, names in around.items()}
    if len(rows) > 1:
        raise ValueError(
            f"`{call}`: sites are observed in several plates, {', '.join(rows)}, and rows are the entries of ONE. "
            "Sum the log likelihood of the smaller data in a `numpyro.factor` outside of plates."
        )
    return next(iter(rows))


def _check_plates(call: str, plate: str, latent: dict[str, Any], plates: dict[str, Any]) -> None:
    for name, site in latent.items():
        if plate in plates_of(site):
            if name.endswith("_unobserved"):
                raise ValueError(
                    f'`{call}`: "{name}" is a latent site in the plate "{plate}" of the rows, made by `obs_mask`. '
                    "Leave missing outcomes out of the data, or out of the likelihood: `with handlers.mask(mask=...):`."
                )
            raise ValueError(
                f'`{call}`: the latent site "{name}" is in the plate "{plate}" of the rows: there would be as many '
                "parameters as rows, and a minibatch says nothing of those of other rows. Sum it out of the likelihood "
                "(a conjugate or mixture distribution), or give it to groups of rows, in a plate of its own; or, if it "
                "is an outcome, give the model its data, `obs`."
            )
    for name, site in plates.items():
        size, part = site["args"]
        if name != plate and part is not None and part != size:
            raise ValueError(
                f'`{call}`: the plate "{name}" takes {part} of its {size} entries, and has no observed site. Leave '
                f'`subsample_size` out: only rows, those of "{plate}", are sampled.'
            )
