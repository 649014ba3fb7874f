"""Why there is no reference: what was found, for which coordinate, and what to do."""

from __future__ import annotations

import jax
import numpy as np

from tallchain.surrogates.passes import Passes, Terms
from tallchain.surrogates.point import Point
from tallchain.types import PyTree
from tallchain.validation import brief

FAR = 0.1
"""Newton decrement above which a point is not a mode."""
LEAST_EIGENVALUE = 1e-6
"""Of the Hessian scaled to a diagonal of ones: float32 cannot tell a smaller one from 0."""

_LARGE = 1e12  # the cube of a larger number overflows float32, or nearly
_SMALL_PART = 0.3  # of a direction of unit length: coordinates with less are not named


class NoReferenceError(RuntimeError):
    """The posterior has no mode, or none was found, or none with a measurable curvature."""


def _found(start: np.ndarray, point: Point) -> str:
    return (
        "`find_reference(...)` found no mode. The search went from a position of norm "
        f"{np.linalg.norm(start):.3g} to one of norm {np.linalg.norm(point.flat):.3g}, with a log posterior of "
        f"{point.log_density:,.6g}."
    )


def not_converged(start: np.ndarray, point: Point, decrement: float, iterations: int, steps: int) -> str:
    """Say how far the search came."""
    return (
        f"{_found(start, point)} After {iterations} iterations and {steps} Newton steps the Newton decrement is "
        f"{decrement:.2g}: the distance to the mode, if there is one, in posterior standard deviations; {FAR} is "
        "enough. Use a proper prior if the position grows without limit (as for outcomes that the features separate); "
        "else start nearer, raise `max_iterations`, or centre and scale the data: float32 positions have 7 digits."
    )


def not_definite(start: np.ndarray, like: PyTree, point: Point, least: float, direction: np.ndarray | None) -> str:
    """Name the coordinates at fault: one without curvature, or those along the direction of least curvature."""
    diagonal = np.diag(point.hessian)
    if direction is None:
        index = int(np.argmin(diagonal))
        found = f"the curvature along {_coordinate(like, index)} is {diagonal[index] + 0.0:.2g}"
    else:
        largest = [int(i) for i in np.argsort(-np.abs(direction))[:3] if abs(direction[i]) > _SMALL_PART]
        along = ", ".join(_coordinate(like, i) for i in largest)
        found = (
            f"its least eigenvalue, scaled to a diagonal of ones, is {least:.2g} ({LEAST_EIGENVALUE:g} is what "
            f"float32 can tell from 0), along {along}"
        )
    return (
        f"{_found(start, point)} The negative Hessian there is not positive definite: {found}. Some direction is "
        "not determined by the data (repeated or constant features, outcomes that the features separate) or this is a "
        "saddle point: use a proper prior, drop or centre features, or start elsewhere. A scale of a hierarchical "
        "prior that ran to 0 has no mode: use its logarithm, and effects in units of the scale, as parameters."
        + ("" if diagonal.min() != 0 else " The squares of numbers below 1e-19 are 0 in float32: rescale such columns.")
    )


def not_falling(start: np.ndarray, point: Point, drop: float) -> str:
    """Say that the log posterior does not fall as it does from a mode."""
    return (
        f"{_found(start, point)} One posterior standard deviation further on, the log posterior has fallen by "
        f"{drop:.2g}; from a mode it falls by about 0.5. It goes on rising or stays flat, as for outcomes that the "
        "features separate, under a flat prior: use a proper prior. Or its gradient is wrong: compare `jax.grad` of "
        "`log_prior` and `log_likelihood` with differences."
    )


def not_finite(passes: Passes, point: Point) -> str:
    """Say what is not finite: value or derivative, of the prior or of a row."""
    call = "`find_reference(...)` found something that is not finite: "
    position = f"the position {_brief(point.flat)}"
    if not point.prior.is_finite:
        return (
            f"{call}{_what(point.prior, passes.like)} of `log_prior(position)`, at {position}. Start where the prior "
            "is positive and smooth. If the density piles up where a scale goes to 0, as in a hierarchical model, "
            "sample the logarithm of the scale, and write the effects as the scale times standard normals."
        )
    found = passes.bad_row(point.flat)
    if found is None:
        return f"{call}the sum over rows overflows at {position}. Start nearer to the mode, or rescale the data."
    where = (
        f"{call}{_what(point.likelihood, passes.like)} of the sum over rows of `log_likelihood(position, row)`, "
        f"for {found[0]}, {brief(found[1])}, at {position}. "
    )
    largest = max((float(np.max(np.abs(leaf), initial=0)) for leaf in jax.tree.leaves(found[1])), default=0.0)
    if _LARGE < largest < np.inf:
        return (
            f"{where}The row holds a number of size {largest:.2g}, and powers of it overflow: rescale the columns of "
            "the data, for example to a standard deviation of 1."
        )
    return (
        f"{where}Start where every row is possible, and look for missing values in the data; sample the logarithm of "
        "a scale that goes to 0."
    )


def _what(terms: Terms, like: PyTree) -> str:
    """Say which part of a function is not finite."""
    if not np.isfinite(terms.value):
        return f"the value ({float(terms.value)})"
    wrong = np.flatnonzero(~np.isfinite(np.asarray(terms.gradient)))
    if len(wrong):
        return f"the derivative by {_coordinate(like, int(wrong[0]))} ({np.asarray(terms.gradient)[wrong[0]]})"
    return "a second derivative"


def _coordinate(like: PyTree, index: int) -> str:
    """Name a coordinate of the flattened position by its path in the position."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(like):
        if index < np.size(leaf):
            entry = "".join(f"[{i}]" for i in np.unravel_index(index, np.shape(leaf))) if np.ndim(leaf) else ""
            return f"position{jax.tree_util.keystr(path)}{entry}"
        index -= np.size(leaf)
    raise IndexError(index)


def _brief(flat: np.ndarray) -> str:
    return np.array2string(flat, threshold=8, edgeitems=3, precision=4)
