"""The paper's worst case (section 2.2): a Gaussian mean at temperature 1, and how often a test needs every row.

Seita, Pan, Chen and Canny, "An Efficient Minibatch Acceptance Test for Metropolis-Hastings": N rows x_i ~ N(0.5, 1), a
flat prior, so that the posterior is N(mean x, 1/N), and proposals N(t, 1/N). Its lemma says that AustereMH and
MHSubLhd then consume all N rows with probability at least

    c = 2 (Phi(1) - Phi(1/2)) (Phi(1) - Phi(1/2)) (exp(-1.125) - exp(-2)) = 0.0085     over (t, t', u),  for every N,

because log u comes close to Delta that often. Here that share is measured, and with it the mean share of rows read.
Every decision starts from its own draw of the exact posterior, so decisions are independent and the limits honest.

What the proof leaves out is the finite-population factor of AustereMH. In units of the posterior's standard deviation
(y = (t - mean x) sqrt N, z = (t' - t) sqrt N), Delta = -z (y + z/2), and the t-test with n of N rows read sees

    mu_std sqrt(n / (N - n)) + (nearly standard normal noise),     mu_std = (Delta - log u) / |z|.

Before the last look m rows are left, and only |mu_std| < G sqrt(m/N) or so goes on to read them, Phi(G) = 1 - epsilon.
So the share of decisions that read literally all rows is at most about

    2 G f(0) sqrt(m/N),     f(0) = E[|z| Phi(-|z|/2)] = 1/sqrt(2 pi) - 1/sqrt(10 pi),  the density of mu_std at 0,

and falls below c for N large enough. The mean share of rows falls far more slowly, if at all; and with rows drawn with
replacement, which is what the proof is about, there is no such factor.

The minibatch test is not better off at temperature 1 with this step: V = Var(Lambda_i) = (N/K)^2 (t' - t)^2 Var(x) is
N z^2, and its variance V/b (1 - b/N) must come below sigma^2, which takes b = V / (sigma^2 + V/N) rows (V / sigma^2
with replacement): a share of N that does not fall with N. A second study shows what makes it small: a higher
temperature or shorter steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import random as jr
from scipy.special import ndtr, ndtri

from tallchain.acceptance import Austere, Confidence, MinibatchBarker, Penalty
from tallchain.acceptance.austere_design import Design, conservative, sequential_error
from tallchain.experiments.common import Progress, versions
from tallchain.functions import shared
from tallchain.kernel import MetropolisHastings
from tallchain.keys import make_key
from tallchain.models.posterior import Posterior
from tallchain.proposals import RandomWalk
from tallchain.sample import sample
from tallchain.sources import Shuffled, WithReplacement
from tallchain.trace import Trace
from tallchain.types import AcceptanceTest, Array, is_positive, is_whole

if TYPE_CHECKING:
    from rich.table import Table

LEMMA = float(2 * (ndtr(1.0) - ndtr(0.5)) ** 2 * (math.exp(-1.125) - math.exp(-2.0)))
"""c, the lemma's lower bound on the share of decisions that consume all N rows."""
BATCH = 50
"""m, the rows between judgements (of MHSubLhd: of the first look) in the paper's first experiment."""
EPSILON = 0.005
"""Of AustereMH in the paper's first experiment."""
DESIGN_ERROR = 0.1
"""The error that AustereMH(c) is designed for: the paper's choice for its logistic regression on MNIST."""
SIGMA = 1.0
"""Standard deviation of Delta* at which the minibatch and the penalty test decide."""

_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi) - 1 / math.sqrt(10 * math.pi)
_QUANTILES = 20_000
_DRAWS, _DRIFTS = 2**20, 2**10  # enough for three digits of a mean
_FEWEST_ROWS = 10 * BATCH
_FEWEST_DECISIONS = 2


# ---- what is compared ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """An acceptance test in the worst case."""

    label: str
    description: str
    make: Callable[[Design], AcceptanceTest]
    design: Callable[[int], Design] = lambda num_rows: Design(BATCH, EPSILON)
    """(m, epsilon) for N rows; only AustereMH has a use for epsilon."""
    is_rival: bool = False
    """Whether the lemma speaks of it."""
    repeats: bool = False
    """Whether its rows are drawn with replacement."""
    is_bounded: bool = False
    """Whether it is told the range of the log ratios, which this model knows."""
    effort: float = 1 / 12
    """Part of the budget it gets: a share near the lemma's takes many decisions to see, a larger one does not."""


def _minibatch(design: Design) -> AcceptanceTest:
    return MinibatchBarker(SIGMA, batch=design.batch, stopping="growth")  # the paper's rule; the formula is for it


def _default(design: Design) -> AcceptanceTest:
    return MinibatchBarker(SIGMA, batch=design.batch)


def _penalty(design: Design) -> AcceptanceTest:
    return Penalty(SIGMA, batch=design.batch, stopping="growth")


def _austere(design: Design) -> AcceptanceTest:
    return Austere(design.epsilon, design.batch)


def _confidence(design: Design) -> AcceptanceTest:
    return Confidence(batch=design.batch)


CONTENDERS = {
    "minibatch": Contender("MinibatchBarker", "MinibatchBarker, the paper's rule", _minibatch, effort=1 / 6),
    "minibatch-default": Contender("MinibatchBarker()", "MinibatchBarker, the default", _default, effort=1 / 6),
    "penalty": Contender("Penalty", "Penalty", _penalty, effort=1 / 6),
    "austere": Contender("AustereMH", f"AustereMH, epsilon = {EPSILON}", _austere, is_rival=True, effort=1),
    "austere-designed": Contender(
        "AustereMH(c)",
        f"AustereMH(c), designed for an error of {DESIGN_ERROR}",
        _austere,
        design=lambda num_rows: conservative(num_rows, DESIGN_ERROR),
        is_rival=True,
        effort=1,
    ),
    "austere-repeats": Contender(
        "AustereMH (repeats)",
        f"AustereMH, epsilon = {EPSILON}, rows with replacement",
        _austere,
        is_rival=True,
        repeats=True,
        effort=1 / 24,  # a row drawn at random costs several times one that is read in order
    ),
    "confidence": Contender("MHSubLhd (bound)", "MHSubLhd", _confidence, is_rival=True, is_bounded=True),
    "confidence-scan": Contender("MHSubLhd (scan)", "MHSubLhd, range from a scan", _confidence, is_rival=True),
}
"""By the name that `Config.tests` uses."""


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
        """All tests, N up to a million: about four minutes of processor time, on two free cores less by the clock."""
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


# ---- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One test at one N."""

    test: str
    num_rows: int
    batch: int
    epsilon: float | None
    """Of AustereMH."""
    num_decisions: int
    num_full: int
    """Decisions that read all N rows (N of them, where rows repeat)."""
    mean_share: float
    """Mean rows read by the test, over N."""
    mean_share_error: float
    """Its standard error."""
    mean_scanned: float
    """Mean rows scanned to set the test up, over N; not part of `mean_share`."""
    acceptance: float
    expected_full: float | None
    """The full share to expect; for AustereMH without replacement a value that it stays below. None: no formula."""
    expected_mean: float | None
    """The mean share to expect. None: no formula."""

    @property
    def label(self) -> str:
        """The test, for a table."""
        return CONTENDERS[self.test].label

    @property
    def full_share(self) -> float:
        """Share of decisions that read all N rows."""
        return self.num_full / self.num_decisions

    @property
    def full_share_limits(self) -> tuple[float, float]:
        """95 per cent confidence limits of the full share."""
        return wilson_limits(self.num_full, self.num_decisions)

    @property
    def verdict(self) -> str | None:
        """Where the limits of the full share stand to the lemma's bound; None if the lemma does not speak of it."""
        if not CONTENDERS[self.test].is_rival:
            return None
        low, high = self.full_share_limits
        return "above" if low > LEMMA else "below" if high < LEMMA else "either"


@dataclass(frozen=True)
class Point:
    """The minibatch test at one temperature and step."""

    series: str
    """"temperature", "step", or "both": the temperature, with the step that suits it."""
    factor: float
    temperature: float
    step: float
    """Standard deviation of the proposals, in units of 1/sqrt(N)."""
    num_rows: int
    num_decisions: int
    mean_share: float
    mean_share_error: float
    expected_mean: float
    expected_with_replacement: float
    """Mean of Var(Lambda_i) / sigma^2, over N: what it would need with replacement, where N is no limit."""


SERIES = {
    "temperature": "temperature K, step 1/sqrt(N)",
    "step": "temperature 1, step 1/(factor sqrt(N))",
    "both": "temperature K, step sqrt(K/N)",
}
"""The three studies in words; K is the factor."""


@dataclass(frozen=True)
class Result:
    """The entries, the study of temperature and step, and what produced them."""

    config: Config
    entries: tuple[Entry, ...]
    study: tuple[Point, ...]
    seconds: float
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists, numbers and strings."""
        entries = [
            asdict(entry)
            | {
                "label": entry.label,
                "full_share": entry.full_share,
                "full_share_limits": list(entry.full_share_limits),
                "verdict": entry.verdict,
            }
            for entry in self.entries
        ]
        config = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self.config).items()}
        return {
            "experiment": "worst-case",
            "config": config,
            "lemma": LEMMA,
            "entries": entries,
            "study": [asdict(point) for point in self.study],
            "seconds": self.seconds,
            "versions": self.versions,
        }

    def to_table(self) -> Table:
        """Return a `rich` table: one line per test and N."""
        from rich.table import Table

        table = Table(title=f"Rows read in the worst case; the lemma's bound is {LEMMA:.4f}", caption=_CAPTION)
        table.add_column("test")
        for name in ("N", "m", "decisions", "all N (95 % limits)", "formula", "lemma", "mean share", "formula", "scan"):
            table.add_column(name, justify="right")
        for test in self.config.tests:
            for entry in self.of(test):
                table.add_row(*_cells(entry))
            table.add_section()
        return table

    def to_study_table(self) -> Table:
        """Return a `rich` table: the minibatch test's share of rows against temperature and step."""
        from rich.table import Table

        table = Table(
            title=f"MinibatchBarker, N = {self.config.study_rows:,}: what makes the mean share of rows small",
            caption=_STUDY_CAPTION,
        )
        table.add_column("factor", justify="right")
        for label in SERIES.values():
            table.add_column(label, justify="right")
        cells = {(point.series, point.factor): _study_cell(point) for point in self.study}
        for factor in self.config.factors:
            table.add_row(f"{factor:g}", *(cells[series, factor] for series in SERIES))
        return table

    def of(self, test: str) -> list[Entry]:
        """Return the entries of one test, by N."""
        return [entry for entry in self.entries if entry.test == test]

    def findings(self) -> list[str]:
        """Return what the numbers say, a sentence or two each."""
        rivals = [entry for entry in self.entries if CONTENDERS[entry.test].is_rival]
        findings = _lemma_findings(rivals) if rivals else []
        if "minibatch" in self.config.tests:
            findings.append(_minibatch_finding(self.of("minibatch"), self.study))
        return findings


_CAPTION = (
    "All N: share of decisions that read every row. Lemma: whether the limits of that share are above its bound, "
    "below, or on either side; it speaks of AustereMH and MHSubLhd. Mean share: rows read over N, with its standard "
    "error. Formula: what to expect, where there is one; < is about its ceiling. Scan: rows scanned for a bound, over "
    "N, not part of the mean share. (repeats): rows drawn with replacement, as in the lemma's proof. (bound), (scan): "
    "the range of the log ratios is known from the model, or found by a scan before every decision. MinibatchBarker, "
    "Penalty: stopped as in the paper. MinibatchBarker(): the library's default."
)
_STUDY_CAPTION = (
    "Measured share with its standard error; by formula; in brackets by formula with replacement, "
    "Var(Lambda_i) / (N sigma^2). No share can be below m/N."
)


def _cells(entry: Entry) -> list[str]:
    low, high = entry.full_share_limits
    return [
        entry.label,
        f"{entry.num_rows:,}",
        f"{entry.batch}",
        f"{entry.num_decisions:,}",
        f"{entry.full_share:.4f} ({low:.4f}-{high:.4f})",
        "-" if entry.expected_full is None else f"{'<' if entry.epsilon else ''}{entry.expected_full:.4f}",
        entry.verdict or "-",
        f"{entry.mean_share:.3f} ± {entry.mean_share_error:.3f}",
        "-" if entry.expected_mean is None else f"{entry.expected_mean:.3f}",
        f"{entry.mean_scanned:g}",
    ]


def _study_cell(point: Point) -> str:
    return (
        f"{point.mean_share:.5f} ± {point.mean_share_error:.5f}; {point.expected_mean:.5f} "
        f"({point.expected_with_replacement:.5f})"
    )


def _lemma_findings(entries: list[Entry]) -> list[str]:
    """Say which tests keep to the lemma, which do not, and why."""
    exceptions = [entry for entry in entries if entry.verdict != "above"]
    others = dict.fromkeys(e.label for e in entries if e.test not in {exception.test for exception in exceptions})
    findings = [f"Above the lemma's {LEMMA:.4f} at every N: {', '.join(others)}."] if others else []
    for entry in exceptions:
        low, high = entry.full_share_limits
        stand = "below the lemma's" if entry.verdict == "below" else "not to be told from the lemma's"
        findings.append(
            f"{entry.label} at N = {entry.num_rows:,} reads all N rows in {entry.full_share:.4f} of its decisions "
            f"(limits {low:.4f} to {high:.4f}), {stand} {LEMMA:.4f}."
        )
    if any(entry.epsilon and not CONTENDERS[entry.test].repeats for entry in entries):
        findings.append(_AUSTERE_FINDING)
    least = min(entries, key=lambda entry: entry.mean_share)
    findings.append(
        f"The mean share of rows is far above the lemma's for all of them: {least.mean_share:.2f} or more "
        f"({least.label}, N = {least.num_rows:,})."
    )
    return findings


_AUSTERE_FINDING = (
    "Without replacement AustereMH can stop shortly before the last row however close the decision is, because its "
    "standard error goes to 0 with the rows that are left: its share of full reads falls as sqrt(m/N). The lemma's "
    "proof leaves this factor out."
)


def _minibatch_finding(entries: list[Entry], study: tuple[Point, ...]) -> str:
    shares = ", ".join(f"{entry.mean_share:.2f}" for entry in entries)
    easiest = max((point for point in study if point.series == "step"), key=lambda point: point.factor)
    return (
        f"MinibatchBarker is no exception at temperature 1 with this step: it reads {shares} of the rows at these N, "
        "and with replacement would need about N. It pays at high temperature or with short steps: steps "
        f"{easiest.factor:g} times shorter bring it to {easiest.mean_share:.1e} of the rows, and a temperature "
        f"{easiest.factor:g} times higher at the same step does as much (one batch is "
        f"{BATCH / easiest.num_rows:.1e} of them)."
    )


def wilson_limits(count: int, total: int) -> tuple[float, float]:
    """95 per cent limits of a probability of which `count` of `total` independent trials came true (Wilson 1927)."""
    z = float(ndtri(0.975))
    share = count / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    return centre - half if count else 0.0, centre + half if count < total else 1.0


# ---- expectations ----------------------------------------------------------------------------------------------------


def expected_minibatch(num_rows: int, batch: int, spread: float) -> tuple[float, float]:
    """Return P(all N rows) and E[rows]/N of the minibatch and the penalty test, taking s2 for its expectation.

    `spread` is that of the log ratios: V/N = N (t'-t)^2 Var(x)/K^2 = (spread z)^2, z standard normal. The rows are
    b = V / (sigma^2 + V/N), rounded up to whole batches.
    """
    v = (spread * ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)) ** 2
    batches = np.maximum(np.ceil(num_rows * v / (SIGMA**2 + v) / batch), 1)
    rows = np.minimum(batches * batch, num_rows)
    # All rows iff b > N - m, that is (V/N) (m/N) > sigma^2 (1 - m/N): rarer than quantiles can show.
    last = (-(-num_rows // batch) - 1) * batch
    edge = SIGMA * math.sqrt(last / (num_rows - last)) / spread
    return float(2 * ndtr(-edge)), float(rows.mean() / num_rows)


def expected_austere(num_rows: int, batch: int, epsilon: float) -> tuple[float, float]:
    """Return a ceiling of P(all N rows), and E[rows]/N, of AustereMH without replacement.

    The mean is that of `sequential_error` over the distribution of mu_std = (Delta - log u)/|z| in the worst case.
    """
    random = np.random.default_rng(0)
    y, z = random.standard_normal((2, _DRAWS))
    mu_std = np.abs((random.standard_exponential(_DRAWS) - z * (y + z / 2)) / z)
    mu_std = np.quantile(mu_std, (np.arange(_DRIFTS) + 0.5) / _DRIFTS)
    share = sequential_error(num_rows, batch, epsilon, mu_std).share
    return austere_ceiling(num_rows, batch, epsilon), float(np.mean(share))


def austere_ceiling(num_rows: int, batch: int, epsilon: float) -> float:
    """2 G f(0) sqrt(r/N): what the share of decisions that read all rows stays below, without replacement.

    r is the number of rows left before the last look, and f(0) the density of mu_std at 0. Less than this read
    everything, because some stop before, by chance.
    """
    left = num_rows - (-(-num_rows // batch) - 1) * batch
    return min(float(-2 * ndtri(epsilon)) * _DENSITY_AT_0 * math.sqrt(left / num_rows), 1.0)


# ---- the model -------------------------------------------------------------------------------------------------------


def log_prior(theta: Array) -> Array:
    """Flat."""
    return jnp.zeros_like(theta)


def log_likelihood(theta: Array, x: Array) -> Array:
    """log N(x; theta, 1), less what does not depend on theta; x and theta are measured from the mean of the rows.

    N differences of this are added up, and in float32 they must be good to better than 1/N. At theta = 0.5 with steps
    of 1/sqrt(N) they are not: t' x and t x agree in most of their digits, and for N = 10^6 Delta comes out wrong by
    more than 0.01. Measured from the mean, theta is as small as the steps themselves, nothing cancels, and Delta is
    right to 1e-4. The posterior is the same, moved.
    """
    return theta * x - theta * theta / 2


@dataclass(frozen=True)
class LogRatioRange:
    """The range over rows of log p(x | t') - log p(x | t): exactly |t' - t| (max x - min x).

    A dataclass and not a closure: two of them that are equal share what JAX has compiled.
    """

    rows_range: float

    def __call__(self, position: Array, candidate: Array) -> Array:
        """|t' - t| (max x - min x)."""
        return self.rows_range * jnp.abs(candidate - position)


@dataclass(frozen=True)
class WorstCase:
    """The rows, measured from their mean, and states of the posterior."""

    x: np.ndarray
    """float64."""
    states: np.ndarray
    """Standard normal draws y; the state is y sqrt(K/N)."""
    key: Array

    @classmethod
    def make(cls, num_rows: int, num_states: int, seed: int) -> WorstCase:
        """Draw them; the same rows and the same first states for the same N and seed."""
        random = np.random.default_rng([seed, num_rows])
        x = random.normal(0.5, 1.0, num_rows)
        key = jr.fold_in(make_key(seed), num_rows)
        return cls(x - x.mean(), random.standard_normal(num_states), key)

    def decide(
        self,
        contender: Contender,
        design: Design,
        num_decisions: int,
        *,
        temperature: float = 1.0,
        step: float = 1.0,
        stream: int = 0,
    ) -> Trace:
        """Make decisions, each from its own state: chains of one draw.

        Tests of the same stream meet the same states, steps and u, which makes them easier to tell apart.
        """
        num_rows = len(self.x)
        x = self.x.astype(np.float32)
        source = WithReplacement(x, BATCH) if contender.repeats else Shuffled(x, BATCH)
        kernel = MetropolisHastings(
            Posterior(shared(log_prior), shared(log_likelihood), temperature),
            source,
            proposal=RandomWalk(step / math.sqrt(num_rows)),
            acceptance=contender.make(design),
            bound=LogRatioRange(float(np.ptp(x))) if contender.is_bounded else None,
        )
        states = self.states[:num_decisions] * math.sqrt(temperature / num_rows)
        starts = jnp.asarray(states, jnp.result_type(float))
        return sample(jr.fold_in(self.key, stream), kernel, starts, 1, num_chains=num_decisions, progress=False)


# ---- the runs --------------------------------------------------------------------------------------------------------


def run(config: Config | None = None, *, progress: Progress | None = None) -> Result:
    """Measure what `config` asks for (the full experiment unless given)."""
    config = config or Config.paper()
    report = progress or (lambda done, total, what: None)
    start = time.perf_counter()
    pieces = [(num_rows, test) for num_rows in config.num_rows for test in config.tests]
    points = [(series, factor) for series in SERIES for factor in config.factors]
    total = len(pieces) + len(points)
    entries: list[Entry] = []
    for done, (num_rows, test) in enumerate(pieces):
        report(done, total, f"{CONTENDERS[test].label}, N = {num_rows:,}")
        entries.append(_entry(config, num_rows, test))
    study: list[Point] = []
    for done, (series, factor) in enumerate(points, start=len(pieces)):
        report(done, total, f"MinibatchBarker, {series}, factor {factor:g}")
        # Every point has random numbers of its own. With the same, "temperature" and "step" would agree to the last
        # digit: the rows read depend on step / K alone.
        study.append(_point(config, series, factor, stream=1 + done))
    report(total, total, "done")
    seconds = time.perf_counter() - start
    return Result(config, tuple(entries), tuple(study), seconds, versions("jax", "numpy", "scipy"))


def _entry(config: Config, num_rows: int, test: str) -> Entry:
    contender = CONTENDERS[test]
    design = contender.design(num_rows)
    worst = WorstCase.make(num_rows, config.num_decisions, config.seed)
    trace = worst.decide(contender, design, config.decisions(test, num_rows))
    is_austere = contender.make is _austere
    mean_share, error = _mean_share(trace)
    expected_full, expected_mean = _expected(contender, design, worst)
    return Entry(
        test,
        num_rows,
        design.batch,
        design.epsilon if is_austere else None,
        num_decisions=trace.num_rows.size,
        num_full=int(np.sum(trace.num_rows >= num_rows)),
        mean_share=mean_share,
        mean_share_error=error,
        mean_scanned=float(np.mean(trace.num_scanned, dtype=float) / num_rows),
        acceptance=float(np.mean(trace.is_accepted)),
        expected_full=expected_full,
        expected_mean=expected_mean,
    )


def _expected(contender: Contender, design: Design, worst: WorstCase) -> tuple[float | None, float | None]:
    num_rows = len(worst.x)
    if contender.make in (_minibatch, _penalty):
        return expected_minibatch(num_rows, design.batch, float(np.std(worst.x)))
    if contender.make is _austere and not contender.repeats:
        return expected_austere(num_rows, design.batch, design.epsilon)
    return None, None


def _point(config: Config, series: str, factor: float, stream: int) -> Point:
    temperature = 1.0 if series == "step" else float(factor)
    step = {"temperature": 1.0, "step": 1 / factor, "both": math.sqrt(factor)}[series]
    num_rows = config.study_rows
    worst = WorstCase.make(num_rows, config.study_decisions, config.seed)
    contender = CONTENDERS["minibatch"]
    design = contender.design(num_rows)
    trace = worst.decide(contender, design, config.study_decisions, temperature=temperature, step=step, stream=stream)
    spread = step / temperature * float(np.std(worst.x))
    mean_share, error = _mean_share(trace)
    return Point(
        series,
        factor,
        temperature,
        step,
        num_rows,
        num_decisions=trace.num_rows.size,
        mean_share=mean_share,
        mean_share_error=error,
        expected_mean=expected_minibatch(num_rows, design.batch, spread)[1],
        expected_with_replacement=(spread / SIGMA) ** 2,
    )


def _mean_share(trace: Trace) -> tuple[float, float]:
    """Return the mean of rows/N over independent decisions, and its standard error."""
    share = trace.num_rows.astype(float).ravel() / trace.population
    return float(share.mean()), float(share.std(ddof=1) / math.sqrt(share.size))
