"""Facts made by hand, with names that need care."""

from __future__ import annotations

import dataclasses
import math

from tallchain.checking.predictive import Panel, PredictiveCheck
from tallchain.report import Advice, Convergence, Facts, ParameterFact, Reading, Stage, Trust

CHECK = PredictiveCheck(
    family="Bernoulli()",
    num_rows=1000,
    num_data=5000,
    num_draws=200,
    interval=0.9,
    panels=(
        Panel(
            title="mean outcome, by predicted mean",
            across="predicted mean",
            along="mean outcome",
            labels=(),
            place=(0.1, 0.2, 0.3),
            rows=(300, 300, 400),
            observed=(0.11, 0.35, 0.3),
            low=(0.08, 0.17, 0.26),
            middle=(0.1, 0.2, 0.3),
            high=(0.12, 0.23, 0.34),
            p_value=1e-5,
        ),
    ),
    notes=("Rows count alike.",),
)


def parameter(name: str, mean: float, sd: float = 0.1, **given: str) -> ParameterFact:
    return ParameterFact(
        name, mean, sd, mean - 1.645 * sd, mean, mean + 1.645 * sd, sd / 60, 4100.0, 4200.0, 1.001, **given
    )


FACTS = Facts(
    title="late ~ distance",
    words="Whether a flight is late, by its distance and its carrier.",
    equation=("late_i ~ Bernoulli(p_i)", "logit(p_i) = β₀ + β₁ distance_i + u_carrier[i]"),
    family="Bernoulli outcomes, logit link",
    num_rows=5000,
    parameters=(
        parameter("(intercept)", -1.2),
        parameter("<b>distance</b> & more", 0.4),
        parameter("log_sd(carrier)", -0.7, kind="group sd", term="carrier"),
        parameter("carrier[UA]", 0.3, kind="group effect", term="carrier", level="UA"),
        parameter("carrier[<AA>]", -0.3, kind="group effect", term="carrier", level="<AA>"),
    ),
    convergence=Convergence(4, 1000, 0.93, 1.003, "carrier[UA]", 4031.0, "log_sd(carrier)", 4000),
    trust=Trust(False, "Penalty()", "PCN(scale=0.5)", None, None, 0.05, 0.2),
    reading=Reading(41.5, 4400, 182600),
    formula="late ~ distance + (1 | carrier)",
    outcome="late",
    priors=("coefficients: N(0, 2.5²)",),
    num_dropped=3,
    dropped={"distance": 3},
    stages=(Stage("reading the file", 0.4), Stage("preparing", 1.5, 20000), Stage("sampling", 2.5, 182600)),
    advice=(Advice("low-ess", "log_sd(carrier) has few draws.", "Draw more."),),
    findings=("sampling             every row alike",),
    predictive=CHECK,
    versions={"tallchain": "0.1.0"},
    seed=7,
    checksum="sha256:abc",
    call='fit("late ~ distance + (1 | carrier)", frame)',
    citations=("A. Author (2020). A title.",),
    made="2026-11-19",
)


def without_numbers() -> Facts:
    """The same with statistics that could not be computed."""
    first, *others = FACTS.parameters
    return dataclasses.replace(FACTS, parameters=(dataclasses.replace(first, r_hat=math.nan), *others))
