"""The runs."""

from __future__ import annotations

import math
import time

import numpy as np

from tallchain.acceptance.austere_design import Design
from tallchain.checking.trace import Trace
from tallchain.experiments.common import Progress, versions
from tallchain.experiments.worst_case.config import Config
from tallchain.experiments.worst_case.contenders import CONTENDERS, SIGMA, Contender, austere, minibatch, penalty
from tallchain.experiments.worst_case.entries import SERIES, Entry, Point
from tallchain.experiments.worst_case.expected import expected_austere, expected_minibatch
from tallchain.experiments.worst_case.model import WorstCase
from tallchain.experiments.worst_case.result import Result


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
        entries.append(measure_entry(config, num_rows, test))
    study: list[Point] = []
    for done, (series, factor) in enumerate(points, start=len(pieces)):
        report(done, total, f"MinibatchBarker, {series}, factor {factor:g}")
        # Every point has random numbers of its own. With the same numbers, "temperature" and "step" would agree to the
        # last digit: the rows read depend only on step / K.
        study.append(measure_point(config, series, factor, stream=1 + done))
    report(total, total, "done")
    seconds = time.perf_counter() - start
    return Result(config, tuple(entries), tuple(study), seconds, versions("jax", "numpy", "scipy"))


def measure_entry(config: Config, num_rows: int, test: str) -> Entry:
    """Measure one test at one N."""
    contender = CONTENDERS[test]
    design = contender.design(num_rows)
    worst = WorstCase.make(num_rows, config.num_decisions, config.seed)
    trace = worst.decide(contender, design, config.decisions(test, num_rows))
    is_austere = contender.make is austere
    mean_share, error = _mean_share(trace)
    expected_full, expected_mean = _expected(contender, design, worst)
    return Entry(
        test,
        num_rows,
        design.batch,
        design.epsilon if is_austere else None,
        num_decisions=trace.rows_read.size,
        num_full=int(np.sum(trace.rows_read >= num_rows)),
        mean_share=mean_share,
        mean_share_error=error,
        mean_scanned=float(np.mean(trace.rows_scanned, dtype=float) / num_rows),
        acceptance=float(np.mean(trace.is_accepted)),
        expected_full=expected_full,
        expected_mean=expected_mean,
    )


def _expected(contender: Contender, design: Design, worst: WorstCase) -> tuple[float | None, float | None]:
    num_rows = len(worst.x)
    if contender.make in (minibatch, penalty):
        return expected_minibatch(num_rows, design.batch, float(np.std(worst.x)))
    if contender.make is austere and not contender.repeats:
        return expected_austere(num_rows, design.batch, design.epsilon)
    return None, None


def measure_point(config: Config, series: str, factor: float, stream: int) -> Point:
    """Measure the minibatch test at one temperature and step."""
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
        num_decisions=trace.rows_read.size,
        mean_share=mean_share,
        mean_share_error=error,
        expected_mean=expected_minibatch(num_rows, design.batch, spread)[1],
        expected_with_replacement=(spread / SIGMA) ** 2,
    )


def _mean_share(trace: Trace) -> tuple[float, float]:
    """Return the mean of rows/N over independent decisions, and its standard error."""
    share = trace.rows_read.astype(float).ravel() / trace.num_rows
    return float(share.mean()), float(share.std(ddof=1) / math.sqrt(share.size))
