"""One model: draw until there are enough effective draws, and compare their moments with the reference."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any

import jax
import numpy as np

import tallchain as tc
from studies.regressions.draws import SMALLEST, Moments, chosen, compared, moments
from studies.regressions.models import SEED, digest, make
from tallchain.models import Regression
from tallchain.models.priors import LOG_GLOBAL, LOG_SLAB


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of the chains."""

    chains: int = 64
    warmup: int = 10
    draws: int = 100
    """Of each chain, in one round."""
    effective: int = 4000
    """Effective draws of every compared parameter to reach."""
    rounds: int = 4
    """At most."""


def compare(name: str, reference: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Draw from a model, and return the differences to a reference."""
    model = make(name)
    if digest(model) != reference["digest"]:
        raise ValueError(f"The rows of `{name}` are not those of the reference: make it anew.")
    places = compared(model)
    assert all(places[at].tolist() == of["place"] for at, of in reference["moments"].items())
    found, facts = draw(model, places, sizes)
    differences = {at: differ(found[at], of) for at, of in reference["moments"].items()}
    kinds = kinds_of(model, places)
    facts |= {"worst": {kind: worst(differences, of) for kind, of in kinds.items()}, "z": z_scores(differences)}
    return {"rows": reference["rows"], "parameters": reference["parameters"]} | facts | {"compared": differences}


def draw(model: Regression, places: dict[str, np.ndarray], sizes: Sizes) -> tuple[dict[str, Moments], dict[str, Any]]:
    """Draw in rounds, each from where the last one ended; return moments, and what they took."""
    prepared = tc.prepare(model, progress=False)
    kernel, key = prepared.kernel(), jax.random.key(SEED)
    at, rounds, accepted, read = prepared.starts(jax.random.fold_in(key, 0), sizes.chains), [], [], []
    began, warnings_given = time.perf_counter(), []
    while True:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            trace = tc.sample(
                jax.random.fold_in(key, 1 + len(rounds)),
                kernel,
                at,
                sizes.draws,
                num_chains=sizes.chains,
                num_warmup=0 if rounds else sizes.warmup,
                scan=0 if rounds else 8,
                progress=False,
            )
        warnings_given += [str(each.message) for each in caught]
        at = jax.tree.map(lambda leaf: leaf[:, -1], trace.position)
        rounds.append(chosen(trace.position, places))
        accepted.append(trace.is_accepted.mean())
        read.append(trace.rows_read.mean())
        found = {name: moments(np.concatenate([of[name] for of in rounds], 1)) for name in places}
        least = min(min(of["ess"]) for of in found.values())
        if least >= sizes.effective or len(rounds) == sizes.rounds:
            break
    return found, {
        "chains": sizes.chains,
        "draws": sizes.draws * len(rounds),
        "least_ess": least,
        "rows_read": float(np.mean(read)),
        "acceptance": float(np.mean(accepted)),
        "seconds": {"preparing": prepared.seconds, "sampling": time.perf_counter() - began},
        "prepared": str(prepared).splitlines(),
        "warnings": warnings_given,
    }


# ---- differences ---------------------------------------------------------------------------------


def differ(found: Moments, reference: dict[str, Any]) -> dict[str, Any]:
    """Return the differences of means in standard deviations, the ratios of these, and Monte Carlo errors."""
    mean, sd = np.array(found["mean"]), np.array(found["sd"])
    of_mean, of_sd = np.array(reference["mean"]), np.array(reference["sd"])
    ratio = sd / of_sd
    values = {
        "difference": (mean - of_mean) / of_sd,
        "difference_error": np.hypot(ratio * found["mean_error"], reference["mean_error"]),
        "ratio": ratio,
        "ratio_error": ratio * np.hypot(found["sd_error"], reference["sd_error"]),
    }
    return {"place": reference["place"]} | {at: [round(float(v), 5) for v in of] for at, of in values.items()}


def kinds_of(model: Regression, places: dict[str, np.ndarray]) -> dict[str, dict[str, slice]]:
    """Return what belongs together, by name and places: scales of the prior, and the smallest groups."""
    terms = model.layout.terms
    scales = {term.log_sd for term in terms} | ({LOG_GLOBAL, LOG_SLAB} & places.keys())
    kinds = {
        "all": dict.fromkeys(places, slice(None)),
        "scales": dict.fromkeys(sorted(scales), slice(None)),
        "small groups": {term.name: slice(SMALLEST) for term in terms},
    }
    return {kind: of for kind, of in kinds.items() if of}


def worst(differences: dict[str, dict[str, Any]], kind: dict[str, slice]) -> dict[str, dict[str, Any]]:
    """Return the largest difference of a kind, and the ratio that is the furthest from 1."""
    found = {}
    for what, centre in (("difference", 0.0), ("ratio", 1.0)):
        each = [
            (abs(value - centre), value, error, f"{name}[{place}]")
            for name, at in kind.items()
            for value, error, place in zip(
                *(differences[name][of][at] for of in (what, f"{what}_error", "place")), strict=True
            )
        ]
        _, value, error, where = max(each)
        found[what] = {"value": value, "error": error, "parameter": where, "count": len(each)}
    return found


def z_scores(differences: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the root mean squares of differences and ratios in their Monte Carlo errors: about 1 without any bias."""
    found = {}
    for what, centre in (("difference", 0.0), ("ratio", 1.0)):
        values, errors = (np.concatenate([of[key] for of in differences.values()]) for key in (what, f"{what}_error"))
        found[what] = float(np.sqrt(np.mean(((values - centre) / errors) ** 2)))
    return found
