"""The command line: `tallchain fit` and what goes with it, `demo`, `audit`, `reproduce` (all experiments, or one)."""

from __future__ import annotations

import contextlib
import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import jax
import numpy as np

import tallchain
from tallchain import fit_commands, launch_command, pack_command
from tallchain.acceptance import Barker, Metropolis, MinibatchBarker
from tallchain.checking.summary import Summary
from tallchain.checking.trace import Trace
from tallchain.command import prepare, refusals, require, save_numbers
from tallchain.kernel import MetropolisHastings
from tallchain.models.gaussian_mixture import GaussianMixture, Grid, gaussian_mixture
from tallchain.pictures.demo import demo_figure
from tallchain.plots import audit as draw_audit
from tallchain.plots.style import figure_of, formats
from tallchain.proposals import RandomWalk
from tallchain.reproduce import reproduce_all, reproduce_correction, reproduce_gradients, reproduce_worst_case
from tallchain.sources import Shuffled
from tallchain.types import AcceptanceTest


class TestName(StrEnum):
    """The acceptance tests of the demo."""

    MINIBATCH = "minibatch"
    PAPER = "paper"
    PUBLISHED = "published"
    BARKER = "barker"
    METROPOLIS = "metropolis"


with contextlib.suppress(ModuleNotFoundError):  # needed only once `build_app` is called, which says so
    import typer

    from tallchain.command import NoProgress, Numbers, Picture, Seed

    # Options that demo and audit share.
    _Rows = Annotated[int, typer.Option(min=1, help="N, the rows of data; the temperature is N/100.")]
    _Chains = Annotated[int, typer.Option(min=1, help="Chains, run in parallel.")]
    _Draws = Annotated[int, typer.Option(min=1, help="Draws to keep from each chain.")]
    _Warmup = Annotated[int, typer.Option(min=0, help="Draws of each chain to make first and throw away.")]
    _Step = Annotated[float, typer.Option(help="Standard deviation of the random walk's steps.")]
    _BatchSize = Annotated[int, typer.Option(min=1, help="Rows of the pilot, or between two judgements of the test.")]
    _Sigma = Annotated[
        float | None,
        typer.Option(
            help="Noise the test absorbs, up to 1.6; more means fewer rows. With --test minibatch only; 1 by default.",
        ),
    ]
    _Test = Annotated[
        TestName,
        typer.Option(
            help="What decides. minibatch: the library's default. paper: as printed in the paper. published: as in the "
            "paper's code. barker, metropolis: exact, reading all rows every time; give them fewer --draws or --rows."
        ),
    ]

_MODES = np.array([[0.0, 1.0], [1.0, -1.0]])
_START_SD = 1.0  # the posterior has 0.45 and 0.85
_GRID_POINTS = 151  # mean and sd are accurate to 7 digits, and the contours look smooth


def main() -> None:
    """Run the command line."""
    require("typer")
    tallchain.cache_programs()
    build_app()(prog_name="tallchain")


def build_app() -> typer.Typer:
    """Return the typer application."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help="Metropolis-Hastings for tall data.")
    app.callback()(_options)
    for command in (fit_commands.fit, fit_commands.predict, fit_commands.summary, fit_commands.check):
        app.command()(command)
    app.command()(pack_command.pack)
    app.command()(launch_command.launch)
    app.command()(demo)
    app.command()(audit)
    reproduce = typer.Typer(invoke_without_command=True)
    reproduce.callback()(reproduce_all)
    reproduce.command("correction")(reproduce_correction)
    reproduce.command("worst-case")(reproduce_worst_case)
    reproduce.command("gradients")(reproduce_gradients)
    app.add_typer(reproduce, name="reproduce")
    return app


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"tallchain {tallchain.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# ---- demo ------------------------------------------------------------------------------------


def demo(
    *,
    rows: _Rows = 1_000_000,
    chains: _Chains = 64,
    draws: _Draws = 40_000,
    warmup: _Warmup = 2_000,
    step: _Step = 0.15,
    batch_size: _BatchSize = 50,
    sigma: _Sigma = None,
    test: _Test = TestName.MINIBATCH,
    seed: Seed = 0,
    output: Annotated[Path, typer.Option(dir_okay=False, help="Where to save the picture.")] = Path("results/demo.png"),
    no_progress: NoProgress = False,
) -> None:
    """Sample the paper's mixture of two Gaussians, compare with the exact posterior, and draw a picture.

    The paper's settings: a million rows, temperature 10,000, step 0.15, 50 rows between judgements. About half a
    minute on two cores. Ctrl-C ends the sampling early and reports the draws made so far.
    """
    require("matplotlib")
    prepare(output, formats())
    mixture = gaussian_mixture(rows, seed=seed)
    kernel = _kernel(mixture, _acceptance(test, sigma), step, batch_size)
    trace = _sample(kernel, draws, chains=chains, warmup=warmup, seed=seed, progress=not no_progress)
    _report(_named(trace), mixture, test, output)


def _acceptance(test: TestName, sigma: float | None) -> AcceptanceTest:
    if sigma is not None and test is not TestName.MINIBATCH:
        raise typer.BadParameter(f"works with --test minibatch only; --test {test} has its own.", param_hint="--sigma")
    with refusals("--sigma"):
        match test:
            case TestName.MINIBATCH:
                return MinibatchBarker() if sigma is None else MinibatchBarker(sigma)
            case TestName.PAPER:
                return MinibatchBarker.paper()
            case TestName.PUBLISHED:
                return MinibatchBarker.as_published_code()
            case TestName.BARKER:
                return Barker()
            case TestName.METROPOLIS:
                return Metropolis()


def _kernel(mixture: GaussianMixture, acceptance: AcceptanceTest, step: float, batch_size: int) -> MetropolisHastings:
    with refusals("--batch-size"):
        source = Shuffled(mixture.data, batch_size)
    with refusals("--step"):
        proposal = RandomWalk(step)
    return MetropolisHastings(mixture.posterior, source, proposal=proposal, acceptance=acceptance)


def _sample(kernel: MetropolisHastings, draws: int, *, chains: int, warmup: int, seed: int, progress: bool) -> Trace:
    starts = _starts(chains, seed)
    with refusals():
        return tallchain.sample(
            jax.random.key(seed), kernel, starts, draws, num_chains=chains, num_warmup=warmup, progress=progress
        )


def _starts(num_chains: int, seed: int) -> np.ndarray:
    """Return over-dispersed starts: R-hat sees a chain that is stuck only if the chains began far apart."""
    noise = np.random.default_rng(seed).standard_normal((num_chains, 2))
    return (_MODES[np.arange(num_chains) % 2] + _START_SD * noise).astype(np.float32)


def _named(trace: Trace) -> Trace:
    """Return the trace with its two parameters by name."""
    theta = trace.position
    return dataclasses.replace(trace, position={"theta_1": theta[..., 0], "theta_2": theta[..., 1]})


def _report(trace: Trace, mixture: GaussianMixture, test: TestName, output: Path) -> None:
    summary = trace.summary()
    print(f"\n{summary}\n")
    grid = mixture.quadrature(_GRID_POINTS)
    print(_comparison(summary, grid))
    temperature = float(mixture.posterior.temperature)
    demo_figure(trace, grid, temperature=temperature, test=f"{test} test").savefig(output)
    print(f"\npicture              {output}")


def _comparison(summary: Summary, grid: Grid) -> str:
    """Return a table of our means and sds next to the exact ones, with the differences in Monte Carlo errors."""
    lines = [f"{'':<14}{'exact':>11}{'ours':>11}{'difference':>18}"]
    for p, mean, sd in zip(summary.parameters, grid.mean, np.sqrt(np.diag(grid.covariance)), strict=True):
        for name, exact, ours, mcse in (("mean", mean, p.mean, p.mcse_mean), ("sd", sd, p.sd, p.mcse_sd)):
            lines.append(f"{p.name + ' ' + name:<14}{exact:>11.4f}{ours:>11.4f}{(ours - exact) / mcse:>+13.1f} MCSE")
    lines.append(
        "Exact is by quadrature. A difference beyond about 3 MCSE (Monte Carlo standard errors) is not chance: a chain"
    )
    lines.append(
        "that has not converged (R-hat), or the error of a minibatch test, which a larger --batch-size reduces."
    )
    return "\n".join(lines)


# ---- audit -----------------------------------------------------------------------------------


def audit(
    *,
    rows: _Rows = 1_000_000,
    chains: _Chains = 64,
    draws: _Draws = 6_000,
    warmup: _Warmup = 2_000,
    step: _Step = 0.15,
    batch_size: _BatchSize = 50,
    sigma: _Sigma = None,
    test: _Test = TestName.MINIBATCH,
    decisions: Annotated[int, typer.Option(min=2, help="Decisions to audit; each costs a sweep over all rows.")] = 400,
    trials: Annotated[
        int | None,
        typer.Option(
            min=2, help="Repeats of each decision, each way.", show_default="2000, or fewer if they read many rows"
        ),
    ] = None,
    seed: Seed = 0,
    output: Numbers = Path("results/audit.json"),
    picture: Picture = None,
    no_progress: NoProgress = False,
) -> None:
    """Measure how wrong a test's decisions are on the paper's mixture, and how far they move the posterior.

    Samples as the demo does, then compares decisions of the chains, each repeated many times, with the exact ones.
    About a minute on two cores. Ctrl-C ends the sampling, or the audit, early.
    """
    require("matplotlib")
    picture = output.with_suffix(".png") if picture is None else picture
    prepare(output, ["json"])
    prepare(picture, formats(), "--picture")
    mixture = gaussian_mixture(rows, seed=seed)
    kernel = _kernel(mixture, _acceptance(test, sigma), step, batch_size)
    trace = _sample(kernel, draws, chains=chains, warmup=warmup, seed=seed, progress=not no_progress)
    with refusals():
        result = tallchain.audit(
            kernel, trace, num_decisions=decisions, num_trials=trials, seed=seed, progress=not no_progress
        )
    names = ("theta_1", "theta_2")
    drift = tuple(dataclasses.replace(of, name=name) for of, name in zip(result.drift, names, strict=False))
    result = dataclasses.replace(result, drift=drift)
    print(f"\n{result}\n")
    save_numbers(result.to_json(), output)
    figure_of(draw_audit(result)[0]).savefig(picture)
    print(f"picture              {picture}")
