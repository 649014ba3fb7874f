"""A trace as an xarray DataTree with the groups and names that ArviZ expects."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from tallchain.types import PyTree

LIBRARY = "tallchain"


def datatree(trace: Any, coords: dict[str, Any] | None, dims: dict[str, list[str]] | None) -> Any:
    """Return the tree; see `Trace.to_datatree`."""
    from arviz_base import from_dict

    variables = trace.variables()
    if taken := variables.keys() & {"chain", "draw"}:
        raise ValueError(
            f"`trace.to_datatree()`: a parameter is named {sorted(taken)[0]!r}, which is a dimension of every "
            "variable in ArviZ, so its draws would be lost. Rename it with `dataclasses.replace(trace, ...)`."
        )
    dims = dict(dims or {})
    if unknown := dims.keys() - variables.keys():
        raise ValueError(
            f"`to_datatree(dims=...)` names the dimensions of parameters: {', '.join(variables)}; got "
            f"{sorted(unknown)[0]!r}."
        )
    labels = {(dims.get(name) or [f"{name}_dim_0"])[0]: list(of) for name, of in trace.names.items()}
    groups: dict[str, PyTree] = {"posterior": variables, "sample_stats": _stats(trace)}
    if trace.before is not None:
        groups |= {"warmup_posterior": trace.before.variables(), "warmup_sample_stats": _stats(trace.before)}
    attributes = attributes_of(trace)
    with warnings.catch_warnings():  # elsewhere more chains than draws are a mistake; here they are usual
        warnings.filterwarnings("ignore", message="Found chain dimension to be longer", category=UserWarning)
        found = from_dict(
            groups, coords=labels | dict(coords or {}), dims=dims, attrs={"posterior": attributes}, save_warmup=True
        )
    found.attrs.update({name: of for name, of in attributes.items() if name.startswith("inference_library")})
    return found


def _stats(trace: Any) -> dict[str, np.ndarray]:
    """What is known of every decision. The log density of all rows is not: it was never computed."""
    return {
        "acceptance_rate": trace.is_accepted.astype(np.float32),
        "accepted": trace.is_accepted,
        "rows_read": trace.rows_read,
        "rows_scanned": trace.rows_scanned,
        "log_ratio": trace.log_ratio,
        "invalid": trace.is_invalid,
        **trace.extras,
    }


def attributes_of(trace: Any) -> dict[str, Any]:
    """What a reader of the file wants to know of the run."""
    total = trace.decisions + trace.warmup
    found: dict[str, Any] = {
        "inference_library": LIBRARY,
        "inference_library_version": _version(),
        "num_rows": trace.num_rows,
        "rows_read_in_all": total.rows_read,
        "rows_scanned_in_all": total.rows_scanned + (trace.scan.rows_swept if trace.scan else 0),
        "interrupted": int(trace.is_interrupted),
        "thin": trace.thin,
        "sampling_time": trace.seconds,
        "seconds_compiling": trace.compile_seconds,
        "seconds_scan": trace.scan_seconds,
    }
    if trace.settings:
        of = trace.settings
        found |= {"test": of.test, "proposal": of.proposal, "prior": of.prior, "temperature": of.temperature}
        found |= {"exact": int(of.is_exact)} | ({"tempered": "NOT the posterior"} if of.is_tempered else {})
    return found


def _version() -> str:
    try:
        return version(LIBRARY)
    except PackageNotFoundError:  # a folder of sources that was not installed
        return ""
