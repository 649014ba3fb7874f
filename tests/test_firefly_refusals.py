"""What a firefly kernel refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import random as jr

import tallchain as tc
from refusals import refuse, table
from tallchain.firefly import FireflyMC, Langevin
from tallchain.firefly.checks import check_memory
from tallchain.models import Regression, families, logistic_regression
from tallchain.proposals import RandomWalk

X = np.array([[1, 0.5], [1, -1], [1, 2], [1, -0.3], [1, 1.2]])
Y = np.array([1, 0, 1, 1, 0])
PLAIN = logistic_regression(X, Y, bound=False)
AT = np.array([0.2, 0.1], np.float32)


def plain(**options: Any) -> FireflyMC:
    return FireflyMC(PLAIN, AT, **options)


@table(
    {
        "posterior": (lambda: FireflyMC(PLAIN.posterior, AT), TypeError, "FireflyMC(regression=...)", "logistic"),
        "probit": (
            lambda: FireflyMC(tc.models.probit_regression(X, Y), AT),
            ValueError,
            'Bernoulli(link="logit")',
            "probit",
        ),
        "groups": (
            lambda: FireflyMC(Regression(families.Bernoulli(), y=Y, x=X[:, 1:], groups={"g": [0, 1, 0, 1, 1]}), AT),
            ValueError,
            "no groups",
            "log_sd(g)",
        ),
        "weights": (
            lambda: FireflyMC(Regression(families.Bernoulli(), y=Y, x=X[:, 1:], weights=[1, 2, 1, 1, 1]), AT),
            ValueError,
            "no weights",
            "from 1 to 2",
        ),
        "temperature": (
            lambda: FireflyMC(logistic_regression(X, Y, temperature=4.0, bound=False), AT),
            ValueError,
            "temperature 1; got 4",
        ),
        "reference": (lambda: FireflyMC(PLAIN, np.zeros(3)), ValueError, "FireflyMC(reference=...)", "shape (3,)"),
        "not finite": (lambda: FireflyMC(PLAIN, np.array([0.0, np.nan])), ValueError, "finite floats", "nan"),
        "brighten": (lambda: plain(brighten=1.5), ValueError, "FireflyMC(brighten=...)", "1.5"),
        "capacity": (lambda: plain(capacity=6), ValueError, "FireflyMC(capacity=...)", "N = 5", "6"),
        "proposal": (lambda: plain(proposal=RandomWalk), TypeError, "FireflyMC(proposal=...)", "RandomWalk"),
        "source": (lambda: plain(source=X), TypeError, "FireflyMC(source=...)", "in memory"),
        "other rows": (
            lambda: plain(source=tc.Shuffled({"x": X[:4], "y": Y[:4]}, 2)),
            ValueError,
            "the 5 rows",
            "has 4",
        ),
        "langevin elsewhere": (
            lambda: tc.sample(
                jr.key(0),
                tc.MetropolisHastings(PLAIN.posterior, tc.Shuffled(PLAIN.data, 2), proposal=Langevin()),
                AT,
                3,
            ),
            TypeError,
            "Langevin",
            "FireflyMC",
        ),
        "temperature of a schedule": (
            lambda: tc.sample(jr.key(0), plain(), AT, 3, schedule=tc.Schedule(lambda draw: 2.0 + 0 * draw)),
            ValueError,
            "FireflyMC is for temperature 1",
        ),
        "recentre": (
            lambda: tc.sample(jr.key(0), plain(), AT, 3, num_chains=2, recentre=lambda position: None),
            ValueError,
            "needs a kernel with a surrogate",
        ),
        "audit": (lambda: tc.audit(plain(), None), TypeError, "audit(kernel=...)", "FireflyMC is exact"),
    }
)
def test_refusals(call: Callable[[], Any], error: type[Exception], fragments: tuple[str, ...]) -> None:
    refuse(call, error, *fragments)


def test_absurd_sizes_are_refused() -> None:
    check_memory(1000, 10_000, 20, 100.0)
    refuse(lambda: check_memory(10**6, 10**6, 20, 5e5), ValueError, "FireflyMC(capacity=1000000", "MiB", "500,000 rows")
