"""The commands `tallchain reproduce`: all experiments of the paper, or one."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tallchain.command import check_writable, prepare, require, save_numbers
from tallchain.experiments import correction, gradients, worst_case
from tallchain.pictures.gradients import gradients_figure
from tallchain.pictures.worst_case import worst_case_figure
from tallchain.plots.style import formats
from tallchain.progress import shown

if TYPE_CHECKING:
    from rich.console import Console

with contextlib.suppress(ImportError):  # needed only once `build_app` is called, which says so
    import typer

    from tallchain.command import NoProgress, Numbers, Picture, Seed

_TABLE_WIDTH = 144


def reproduce_all(
    context: typer.Context,
    *,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's own sizes: most of an hour on two cores.")
    ] = False,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the report and its numbers.")] = Path(
        "results"
    ),
    seed: Seed = 0,
    no_progress: NoProgress = False,
) -> None:
    """Repeat all experiments of the paper and write a report with its numbers next to ours.

    Quick sizes unless --paper is given: minutes on two cores. Finished draws are kept in the folder, so an interrupted
    run resumes where it stopped. With a COMMAND, only one experiment.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    require("arviz_stats", "blackjax", "matplotlib", "rich")
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


def _refuse_options(context: typer.Context, command: str) -> None:
    """Refuse options in front of the command of one experiment, which would not see them."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if "paper" in given:
        raise typer.BadParameter(
            f"is for all experiments together. `tallchain reproduce {command}` has the paper's sizes unless --quick is "
            "given.",
            param_hint="--paper",
        )
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise typer.BadParameter(
            f"stands before `{command}`, where it is for all experiments together. Put it after the command: "
            f"`tallchain reproduce {command} {option} ...`, if `tallchain reproduce {command} --help` has it.",
            param_hint=option,
        )


def reproduce_correction(
    *,
    output: Numbers = Path("results/correction.json"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Only one column of the table (n = 2000, sigma = 1): seconds.")
    ] = False,
    no_progress: NoProgress = False,
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
    save_numbers(result.to_json(), output)


def _agreement(entries: Sequence[correction.Entry]) -> str:
    others = [entry for entry in entries if not entry.is_within]
    known = sum(entry.is_known_to_differ for entry in others)
    return (
        f"{len(entries) - len(others)} of {len(entries)} entries as printed, {known} known to differ, "
        f"{len(others) - known} others"
    )


def reproduce_worst_case(
    *,
    output: Numbers = Path("results/worst_case.json"),
    picture: Picture = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only four tests and small N: seconds.")] = False,
    seed: Seed = 0,
    no_progress: NoProgress = False,
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
    save_numbers(result.to_json(), output)
    worst_case_figure(result).savefig(picture)
    print(f"picture              {picture}")


def reproduce_gradients(
    *,
    output: Numbers = Path("results/gradients.json"),
    picture: Picture = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer samplers, chains and steps: a quarter of a minute.")
    ] = False,
    seed: Seed = 0,
    no_progress: NoProgress = False,
) -> None:
    """Run gradient proposals under the paper's test, and stochastic gradients without one, on its two experiments.

    On the mixture: how far the draws are from the posterior, against the rows read in all and against the step.
    On MNIST-13k: accuracy against rows. With Langevin, Hamiltonian and AMAGOLD steps, the paper's walk, and SGLD,
    SGHMC, SGNHT and SGFS. About ten minutes on two cores.
    """
    require("rich", "matplotlib", "blackjax")
    picture = output.with_suffix(".png") if picture is None else picture
    prepare(output, ["json"])
    prepare(picture, formats(), "--picture")
    config = gradients.Config.quick(seed) if quick else gradients.Config.paper(seed)
    with _bar(not no_progress) as report:
        result = gradients.run(config, progress=report)
    console = _console()
    for table in result.to_tables():
        console.print(table.to_rich())
    for finding in result.findings():
        print(textwrap.fill(finding, _TABLE_WIDTH))
    save_numbers(result.to_json(), output)
    gradients_figure(result).savefig(picture)
    print(f"picture              {picture}")


def _console() -> Console:
    from rich.console import Console

    # A file or a pipe has no fixed width: a line of the table stays one line.
    return Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)


@contextlib.contextmanager
def _bar(is_wanted: bool) -> Generator[Callable[[int, int, str], None]]:
    """Yield a function that moves a progress bar: report(done, total, what)."""
    with shown(is_wanted, "experiments", 1) as show:
        yield lambda done, total, what: show(done, what, total)
