"""The command line: `tallchain demo`, `tallchain audit`, `tallchain reproduce` (all experiments, or one)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import textwrap
from collections.abc import Callable, Generator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import jax
import numpy as np

import tallchain
from tallchain.acceptance import Barker, Metropolis, MinibatchBarker
from tallchain.checking.summary import Summary
from tallchain.checking.trace import Trace
from tallchain.command import check_writable, prepare, refusals, require
from tallchain.experiments import correction, worst_case
from tallchain.kernel import MetropolisHastings
from tallchain.models.gaussian_mixture import GaussianMixture, Grid, gaussian_mixture
from tallchain.pictures.audit import audit_figure
from tallchain.pictures.demo import demo_figure
from tallchain.pictures.style import formats
from tallchain.pictures.worst_case import worst_case_figure
from tallchain.progress import shown
from tallchain.proposals import RandomWalk
from tallchain.sources import Shuffled
from tallchain.types import AcceptanceTest

if TYPE_CHECKING:
    from rich.console import Console


class TestName(StrEnum):
    """The acceptance tests of the demo."""

    MINIBATCH = "minibatch"
    PAPER = "paper"
    PUBLISHED = "published"
    BARKER = "barker"
    METROPOLIS = "metropolis"


with contextlib.suppress(ModuleNotFoundError):  # needed only once `build_app` is called, which says so
    import typer

    # Options that several commands share.
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
    _Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")]
    _Numbers = Annotated[Path, typer.Option(dir_okay=False, help="Where to save the numbers, as JSON.")]
    _Picture = Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Where to save the picture.", show_default="in the same folder as the numbers, as PNG"
        ),
    ]
    _NoProgress = Annotated[bool, typer.Option("--no-progress", help="Show no progress bar.")]

_MODES = np.array([[0.0, 1.0], [1.0, -1.0]])
_START_SD = 1.0  # the posterior has 0.45 and 0.85
_TABLE_WIDTH = 144
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
    app.command()(demo)
    app.command()(audit)
    reproduce = typer.Typer(invoke_without_command=True)
    reproduce.callback()(reproduce_all)
    reproduce.command("correction")(reproduce_correction)
    reproduce.command("worst-case")(reproduce_worst_case)
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
    seed: _Seed = 0,
    output: Annotated[Path, typer.Option(dir_okay=False, help="Where to save the picture.")] = Path("results/demo.png"),
    no_progress: _NoProgress = False,
) -> None:
    """Sample the paper's mixture of two Gaussians, compare with the exact posterior, and draw a picture.

    The paper's settings: a million rows, temperature 10,000, step 0.15, 50 rows between judgements. About half a
    minute on two cores. Ctrl-C ends the sampling early and reports the draws made so far.
    """
    require("arviz_stats", "matplotlib")
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
    seed: _Seed = 0,
    output: _Numbers = Path("results/audit.json"),
    picture: _Picture = None,
    no_progress: _NoProgress = False,
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
    _save_numbers(result.to_json(), output)
    audit_figure(result).savefig(picture)
    print(f"picture              {picture}")


# ---- reproduce -------------------------------------------------------------------------------


def reproduce_all(
    context: typer.Context,
    *,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's own sizes: most of an hour on two cores.")
    ] = False,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the report and its numbers.")] = Path(
        "results"
    ),
    seed: _Seed = 0,
    no_progress: _NoProgress = False,
) -> None:
    """Repeat all experiments of the paper and write a report with its numbers next to ours.

    Quick sizes unless --paper is given: minutes on two cores. Finished draws are kept in the folder, so an interrupted
    run resumes where it stopped. With a COMMAND, only one experiment.
    """
    if context.invoked_subcommand is not None:
        return
    require("arviz_stats", "matplotlib", "rich")
    check_writable(output / "report.html", "--output")
    from tallchain.experiments import report

    try:
        with _bar(not no_progress) as bar:
            results = report.run_all(paper, output, seed=seed, progress=bar)
    except KeyboardInterrupt:
        sys.exit(f"Interrupted. Finished draws are kept in {output / 'trials'}: the same command resumes from there.")
    page, text = report.write(results, output, is_paper=paper, seed=seed)
    for table in report.main_tables(results):
        _console().print(table.to_rich())
    print(f"report               {page}, {text}")


def reproduce_correction(
    *,
    output: _Numbers = Path("results/correction.json"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Only one column of the table (n = 2000, sigma = 1): seconds.")
    ] = False,
    no_progress: _NoProgress = False,
) -> None:
    """Repeat the appendix table: how close normal noise plus the correction comes to logistic.

    40 solves of the paper's least squares for the correction variable, compared with the library's own tables. About a
    minute on two cores.
    """
    require("rich")
    prepare(output, ["json"])
    with _bar(not no_progress) as report:
        result = correction.run(correction.Config.quick() if quick else correction.Config.paper(), progress=report)
    _console().print(result.to_table())
    print(_agreement(result.entries))
    _save_numbers(result.to_json(), output)


def _agreement(entries: Sequence[correction.Entry]) -> str:
    others = [entry for entry in entries if not entry.is_within]
    known = sum(entry.is_known_to_differ for entry in others)
    return (
        f"{len(entries) - len(others)} of {len(entries)} entries as printed, {known} known to differ, "
        f"{len(others) - known} others"
    )


def reproduce_worst_case(
    *,
    output: _Numbers = Path("results/worst_case.json"),
    picture: _Picture = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only four tests and small N: seconds.")] = False,
    seed: _Seed = 0,
    no_progress: _NoProgress = False,
) -> None:
    """Repeat the worst case of section 2.2: how often a test needs every row, and how many on average.

    A Gaussian mean at temperature 1, with steps as wide as the posterior, for N up to a million rows. Compares the
    paper's lemma with what the other tests and the paper's own test do. Minutes on two cores.
    """
    require("rich", "matplotlib")
    picture = output.with_suffix(".png") if picture is None else picture
    prepare(output, ["json"])
    prepare(picture, formats(), "--picture")
    config = worst_case.Config.quick(seed) if quick else worst_case.Config.paper(seed)
    with _bar(not no_progress) as report:
        result = worst_case.run(config, progress=report)
    console = _console()
    console.print(result.to_table())
    console.print(result.to_study_table())
    for finding in result.findings():
        print(textwrap.fill(finding, _TABLE_WIDTH))
    _save_numbers(result.to_json(), output)
    worst_case_figure(result).savefig(picture)
    print(f"picture              {picture}")


def _console() -> Console:
    from rich.console import Console

    # A file or a pipe has no fixed width: a line of the table stays one line.
    return Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)


def _save_numbers(numbers: dict[str, Any], output: Path) -> None:
    output.write_text(json.dumps(numbers, indent=2) + "\n")
    print(f"numbers              {output}")


@contextlib.contextmanager
def _bar(is_wanted: bool) -> Generator[Callable[[int, int, str], None]]:
    """Yield a function that moves a progress bar: report(done, total, what)."""
    with shown(is_wanted, "experiments", 1) as show:
        yield lambda done, total, what: show(done, what, total)
