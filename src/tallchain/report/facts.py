"""Everything that the report of a fit says, as plain values: JSON holds it, and a page can be made of it again."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from tallchain.checking.predictive import PredictiveCheck

Kind = Literal["coefficient", "shared", "group sd", "group effect", "prior scale"]


@dataclasses.dataclass(frozen=True)
class Advice:
    """Something to know or to do, once and in plain words."""

    code: str
    """A short name that stays the same, such as "r-hat"."""
    what: str
    """What was found."""
    remedy: str
    """What to do about it."""
    is_grave: bool = False
    """Whether the numbers should not be used before it is remedied."""

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


@dataclasses.dataclass(frozen=True)
class ParameterFact:
    """One number that was estimated."""

    name: str
    mean: float
    sd: float
    q5: float
    median: float
    q95: float
    mcse: float
    """Monte Carlo error of the mean."""
    ess_bulk: float
    ess_tail: float
    r_hat: float
    kind: Kind = "coefficient"
    term: str = ""
    """Of a group effect or its standard deviation: the term, such as "carrier" or "carrier:distance"."""
    level: str = ""
    """Of a group effect: the label of the group."""


@dataclasses.dataclass(frozen=True)
class Convergence:
    """Whether the chains agree, and how many independent draws they are worth."""

    num_chains: int
    num_draws: int
    """Of each chain."""
    acceptance: float
    worst_r_hat: float
    worst_r_hat_of: str
    """Name of the parameter."""
    worst_ess: float
    worst_ess_of: str
    asked_ess: float | None = None
    """Effective draws that were asked for."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """One part of the work."""

    name: str
    seconds: float
    rows: int = 0
    """Rows read or swept."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """Rows that decisions read."""

    per_decision: float
    """Mean, scanned ones included."""
    decisions: int
    """In all, warm-up included."""
    total: int
    """Rows read in all, for decisions."""


@dataclasses.dataclass(frozen=True)
class Trust:
    """Why the draws can be trusted, apart from their convergence."""

    is_exact: bool
    """Whether the test leaves the posterior unchanged, whatever the rows."""
    test: str
    """In words, such as "MHSS(truncation=...)"."""
    proposal: str
    audited_error: float | None = None
    """Upper limit (95 %) of the mean |error| of the log-odds of a decision; None without an audit."""
    is_sound: bool | None = None
    """What the audit said; None without one."""
    skewness: float | None = None
    """Largest skewness of the mean of a batch, over the proposals of the scan; None without a scan."""
    kurtosis: float | None = None
    """Largest excess kurtosis, likewise."""
    temperature: float = 1.0
    part_error: float | None = None
    """Standard deviation between log densities of single parts and of all rows; None if decisions see all rows."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What was fitted, what came out, what it cost, and how far to trust it."""

    title: str
    words: str
    """The model in a sentence or two."""
    equation: tuple[str, ...]
    """The model as lines of plain text, Greek letters and all."""
    family: str
    """In words, such as "Bernoulli outcomes, logit link"."""
    num_rows: int
    parameters: tuple[ParameterFact, ...]
    convergence: Convergence
    trust: Trust
    reading: Reading
    formula: str | None = None
    coding: tuple[str, ...] = ()
    """What the formula does not say itself, such as which label counts as 1: a sentence for each thing."""
    outcome: str = ""
    """Name of what is explained."""
    priors: tuple[str, ...] = ()
    """A line for each, in words."""
    num_dropped: int = 0
    """Rows left out for missing values."""
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    """Missing values by column."""
    stages: tuple[Stage, ...] = ()
    advice: tuple[Advice, ...] = ()
    findings: tuple[str, ...] = ()
    """What `prepare` found and chose, line by line."""
    predictive: PredictiveCheck | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    seed: int | None = None
    checksum: str | None = None
    """Of the data."""
    call: str | None = None
    """The call or the command."""
    citations: tuple[str, ...] = ()
    made: str | None = None
    """When, in words."""

    def of_kind(self, *kinds: Kind) -> tuple[ParameterFact, ...]:
        """Return the parameters of some kinds, in order."""
        return tuple(each for each in self.parameters if each.kind in kinds)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms that have group effects, in order."""
        return tuple(dict.fromkeys(each.term for each in self.of_kind("group effect")))

    @property
    def is_grave(self) -> bool:
        """Whether the numbers should not be used as they are."""
        return any(each.is_grave for each in self.advice)

    def to_json(self) -> str:
        """Return JSON; numbers that are not finite become null."""
        found = dataclasses.asdict(self)
        found["predictive"] = self.predictive and self.predictive.to_json()
        return json.dumps(_plain(found), indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """Return the facts of which `to_json` made JSON."""
        found = json.loads(text)
        records = {"convergence": Convergence, "trust": Trust, "reading": Reading}
        lists = {"parameters": ParameterFact, "stages": Stage, "advice": Advice}
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        given |= {name: _record(record, found[name]) for name, record in records.items()}
        given |= {name: tuple(_record(record, each) for each in found[name]) for name, record in lists.items()}
        if found["convergence"]["worst_r_hat"] is None:  # of a parameter that never moved: not a number that is small
            given["convergence"] = dataclasses.replace(given["convergence"], worst_r_hat=math.inf)
        given["predictive"] = found["predictive"] and PredictiveCheck.from_json(found["predictive"])
        return cls(**given)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _record(record: Any, found: Mapping[str, Any]) -> Any:
    """Make a record; null is NaN where it must be a number."""
    is_number = {field.name for field in dataclasses.fields(record) if field.type == "float"}
    return record(**{name: math.nan if value is None and name in is_number else value for name, value in found.items()})
