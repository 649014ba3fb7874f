"""How much to measure."""

from __future__ import annotations

from dataclasses import dataclass

from tallchain.experiments.worst_case.contenders import BATCH, CONTENDERS
from tallchain.validation import is_positive, is_whole

_FEWEST_ROWS = 10 * BATCH
_FEWEST_DECISIONS = 2


@dataclass(frozen=True)
class Config:
    """What to measure, and with how many decisions."""

    num_rows: tuple[int, ...]
    """The values of N."""
    tests: tuple[str, ...]
    """Names of CONTENDERS."""
    num_decisions: int
    """Decisions of each test at each N, at most."""
    budget: float
    """Rows that these decisions may read, at most: they are fewer where N is large."""
    study_rows: int
    """N of the study of temperature and step."""
    study_decisions: int
    """Decisions at each of its points."""
    factors: tuple[float, ...]
    """How many times higher the temperature, or shorter the step, than in the worst case."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def quick(cls, seed: int = 0) -> Config:
        """Four tests, small N: some seconds, most of them to compile."""
        return cls(
            num_rows=(1_000, 10_000),
            tests=("minibatch", "minibatch-default", "austere", "confidence"),
            num_decisions=1024,
            budget=1e9,
            study_rows=10_000,
            study_decisions=1024,
            factors=(1.0, 3.0, 10.0, 30.0),
            seed=seed,
        )

    @classmethod
    def paper(cls, seed: int = 0) -> Config:
        """All tests, N up to a million: about four minutes of processor time, less elapsed time on two free cores."""
        return cls(
            num_rows=(1_000, 10_000, 100_000, 1_000_000),
            tests=tuple(CONTENDERS),
            num_decisions=6000,
            budget=6e9,
            study_rows=100_000,
            study_decisions=2048,
            factors=(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
            seed=seed,
        )

    def decisions(self, test: str, num_rows: int) -> int:
        """Return how many decisions a test makes at this N."""
        affordable = int(self.budget * CONTENDERS[test].effort / num_rows)
        return max(min(self.num_decisions, affordable), _FEWEST_DECISIONS)


def _check(config: Config) -> None:
    for name, values in (("num_rows", config.num_rows), ("study_rows", (config.study_rows,))):
        if not values or not all(is_whole(value, _FEWEST_ROWS) for value in values):
            raise ValueError(
                f"`Config({name}=...)`: each N must be a whole number, at least {_FEWEST_ROWS}; "
                f"got {getattr(config, name)!r}."
            )
    for name, least in (("num_decisions", _FEWEST_DECISIONS), ("study_decisions", _FEWEST_DECISIONS), ("seed", 0)):
        if not is_whole(getattr(config, name), least):
            raise ValueError(
                f"`Config({name}=...)` must be a whole number, at least {least}; got {getattr(config, name)!r}."
            )
    unknown = [test for test in config.tests if test not in CONTENDERS]
    if unknown or not config.tests:
        raise ValueError(f"`Config(tests=...)` must name some of {', '.join(CONTENDERS)}; got {config.tests!r}.")
    if not is_positive(config.budget):
        raise ValueError(f"`Config(budget=...)` must be a positive number of rows; got {config.budget!r}.")
    if not config.factors or not all(is_positive(factor) for factor in config.factors):
        raise ValueError(f"`Config(factors=...)` must be positive numbers; got {config.factors!r}.")
