"""One method on one table in a process of its own; prints what it found as a line of JSON.

`python -m benchmarks.time_to_answer.child METHOD FOLDER CALLS`: the folder has x.npy and y.npy. Nothing is imported
before the clock starts but NumPy and what Python itself needs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

EFFECTIVE = 4000
Answer = dict[str, Any]


def main() -> None:
    """Run the method once or twice, and print the times."""
    method, folder, calls = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    answers = []
    for _ in range(calls):
        began = time.perf_counter()
        answer = METHODS[method](x, y)
        seconds = time.perf_counter() - began
        answers.append({"seconds": _to_all_draws(seconds, answer), "measured": seconds} | answer.pop("check")(answer))
    print(json.dumps(dict(zip(("first", "again"), answers, strict=False)) | _programs()))


def _to_all_draws(seconds: float, answer: Answer) -> float:
    """Where fewer effective draws were made, add the time that the rest would take."""
    if "effective" not in answer or answer["effective"] >= EFFECTIVE:
        return seconds
    return seconds + (EFFECTIVE / answer["effective"] - 1) * answer["drawing"]


# ---- fits ----------------------------------------------------------------------------------------


def _scikit_learn(solver: str) -> Any:
    def fit(x: np.ndarray, y: np.ndarray) -> Answer:
        from sklearn.linear_model import LogisticRegression  # ty: ignore[import-not-found]

        model = LogisticRegression(C=1.0, solver=solver, fit_intercept=False, max_iter=1000).fit(x, y)
        return _point(model.coef_[0])

    return fit


def _glum(x: np.ndarray, y: np.ndarray) -> Answer:
    from glum import GeneralizedLinearRegressor  # ty: ignore[import-not-found]

    model = GeneralizedLinearRegressor(family="binomial", alpha=1 / len(y), l1_ratio=0, fit_intercept=False)
    return _point(model.fit(x, y).coef_)


def _point(coefficients: np.ndarray) -> Answer:
    return {"check": lambda answer: {"mean": np.asarray(coefficients, float).tolist()}}


# ---- posteriors ----------------------------------------------------------------------------------


def _tallchain(x: np.ndarray, y: np.ndarray) -> Answer:
    import jax

    import tallchain as tc

    model = tc.models.logistic_regression(x, y, prior_sd=1.0, bound=False)
    prepared = tc.prepare(model.posterior, model.data, np.zeros(x.shape[1], np.float32), progress=False)
    starts = prepared.starts(jax.random.key(1), 64)
    trace = tc.sample(jax.random.key(2), prepared.kernel(), starts, 100, num_chains=64, progress=False)
    return _draws(trace.position, {"drawing": trace.seconds, "rows_swept": prepared.rows_swept})


def _numpyro_model(subsample: int | None) -> Any:
    import jax.numpy as jnp
    import numpyro  # ty: ignore[import-not-found]
    import numpyro.distributions as dist  # ty: ignore[import-not-found]

    def model(x: Any, y: Any) -> None:
        t = numpyro.sample("t", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", len(y), subsample_size=subsample):
            xs, ys = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
            numpyro.sample("y", dist.Bernoulli(logits=jnp.asarray(xs) @ jnp.asarray(t)), obs=ys)

    return model


def _bridged(x: np.ndarray, y: np.ndarray) -> Answer:
    """NumPyro's model, by `fit` at its defaults: its check of all rows is counted."""
    import tallchain as tc

    bridged = tc.bridges.numpyro.posterior(_numpyro_model(None), x, y)
    fit = tc.fit(bridged, num_draws=EFFECTIVE, progress=False)
    return _draws(fit.draws["t"], {"drawing": fit.trace.seconds})


def _numpyro(subsample: int | None, warmup: int, draws: int) -> Any:
    def run(x: np.ndarray, y: np.ndarray) -> Answer:
        import jax
        import jax.numpy as jnp
        from numpyro.infer import HMCECS, MCMC, NUTS  # ty: ignore[import-not-found]

        model = _numpyro_model(subsample)
        rows = jnp.asarray(x), jnp.asarray(y, jnp.float32)
        kernel: Any = NUTS(model)
        if subsample is not None:
            # Its proxy needs the mode, which its users find by a fit.
            mode = np.asarray(_scikit_learn("newton-cholesky")(x, y)["check"](None)["mean"], np.float32)
            kernel = HMCECS(NUTS(model), num_blocks=10, proxy=HMCECS.taylor_proxy({"t": jnp.asarray(mode)}, degree=2))
        chain = MCMC(kernel, num_warmup=warmup, num_samples=draws, progress_bar=False)
        chain.warmup(jax.random.key(1), *rows)
        began = time.perf_counter()
        chain.run(jax.random.key(2), *rows)
        found = np.asarray(chain.get_samples()["t"])[None]
        return _draws(found, {"drawing": time.perf_counter() - began})

    return run


def _blackjax(warmup: int, draws: int) -> Any:
    def run(x: np.ndarray, y: np.ndarray) -> Answer:
        import blackjax
        import jax
        import jax.numpy as jnp

        rows = jnp.asarray(x), jnp.asarray(y, jnp.float32)

        def density(t: Any) -> Any:
            logits = rows[0] @ t
            return -0.5 * jnp.sum(t**2) + jnp.sum(rows[1] * logits - jnp.logaddexp(0.0, logits))

        adaptation: Any = blackjax.window_adaptation(blackjax.nuts, density)
        (state, parameters), _ = adaptation.run(jax.random.key(1), jnp.zeros(x.shape[1]), warmup)
        step = blackjax.nuts(density, **parameters).step

        def draw(state: Any, key: Any) -> Any:
            state, _ = step(key, state)
            return state, state.position

        @jax.jit
        def chain(state: Any, keys: Any) -> Any:
            return jax.lax.scan(draw, state, keys)

        keys = jax.random.split(jax.random.key(2), draws)
        began = time.perf_counter()
        found = np.asarray(chain(state, keys)[1])[None]
        return _draws(found, {"drawing": time.perf_counter() - began})

    return run


def _draws(draws: np.ndarray, facts: Answer) -> Answer:
    effective = _effective(np.asarray(draws, np.float64))

    def check(answer: Answer) -> Answer:
        flat = np.asarray(draws, np.float64).reshape(-1, draws.shape[-1])
        return facts | {"effective": effective, "mean": flat.mean(0).tolist(), "sd": flat.std(0).tolist()}

    return facts | {"effective": effective, "check": check}


def _effective(draws: np.ndarray) -> float:
    """Effective draws of the worst parameter, by batch means: no library, and no time to speak of.

    Var(mean over batches), with batches of sqrt(n) draws, against the variance of one draw; (chain, draw, parameter).
    """
    chains, length, size = draws.shape
    batch = max(int(np.sqrt(chains * length)) // 2, 1) if chains == 1 else length
    means = draws[:, : length // batch * batch].reshape(-1, batch, size).mean(1)
    spread = means.var(0, ddof=1) * batch
    return float(np.min(draws.var((0, 1)) / np.maximum(spread, 1e-300)) * chains * length)


# ---- compilation ---------------------------------------------------------------------------------

_COMPILED: list[tuple[str, float]] = []


def _listen() -> None:
    """Note every program that XLA compiles."""
    from jax import monitoring

    def note(event: str, duration_secs: float, **facts: Any) -> None:
        if event.endswith("backend_compile_duration"):
            _COMPILED.append((str(facts.get("fun_name", "?")), duration_secs))

    monitoring.register_event_duration_secs_listener(note)


def _programs() -> Answer:
    seconds = sum(seconds for _, seconds in _COMPILED)
    by_time = sorted(_COMPILED, key=lambda one: -one[1])[:12]
    return {"programs": len(_COMPILED), "compile_seconds": seconds, "longest": by_time} if _COMPILED else {}


def _listening(method: Any) -> Any:
    def run(x: np.ndarray, y: np.ndarray) -> Answer:
        if not _COMPILED and os.environ.get("TIME_TO_ANSWER_PROGRAMS"):
            _listen()
        return method(x, y)

    return run


METHODS: dict[str, Any] = {
    "tallchain": _listening(_tallchain),
    "tallchain, NumPyro's model": _bridged,
    "scikit-learn newton-cholesky": _scikit_learn("newton-cholesky"),
    "scikit-learn lbfgs": _scikit_learn("lbfgs"),
    "glum": _glum,
    "NumPyro NUTS": _numpyro(None, 300, 200),
    "NumPyro HMCECS": _numpyro(1000, 500, 1000),
    "BlackJAX NUTS": _blackjax(300, 200),
}

if __name__ == "__main__":
    main()
