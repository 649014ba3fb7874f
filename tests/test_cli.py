"""The command line, from its help texts to the picture."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tallchain import __version__, cli
from tallchain.checking.trace import Trace
from tallchain.experiments import correction, document, report, worst_case
from tallchain.models.gaussian_mixture import Grid
from tallchain.pictures import demo
from tallchain.pictures.posterior import levels

TINY = ("--rows", "20000", "--chains", "4", "--draws", "50", "--warmup", "20", "--no-progress")
OPTIONS = {
    (): ["--version"],
    ("demo",): [
        *("--rows", "--chains", "--draws", "--warmup", "--step", "--batch-size", "--sigma", "--test", "--seed"),
        *("--output", "--no-progress"),
    ],
    ("reproduce",): ["--paper", "--output", "--seed", "--no-progress", "correction", "worst-case"],
    ("reproduce", "correction"): ["--output", "--quick", "--no-progress"],
    ("reproduce", "worst-case"): ["--output", "--picture", "--quick", "--seed", "--no-progress"],
}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.build_app(), [str(a) for a in arguments])


def text(output: str) -> str:
    """Return the words of the output, without colours, frames and line breaks."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    return " ".join(re.sub("[│╭╮╰╯─]", " ", plain).split())


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


def test_version():
    result = call("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"tallchain {__version__}"


@pytest.mark.parametrize("command", OPTIONS)
def test_help_explains_every_option(command):
    result = call(*command, "--help")
    assert result.exit_code == 0
    words = text(result.output)
    for option in OPTIONS[command]:
        # After the option come its type in angle brackets or its range, then a sentence.
        assert re.search(rf"{option}\b[^-]* [A-Z]\w*", words), option


@pytest.mark.parametrize(
    ("function", "command"),
    [
        (cli.demo, ("demo",)),
        (cli.reproduce_correction, ("reproduce", "correction")),
        (cli.reproduce_worst_case, ("reproduce", "worst-case")),
    ],
)
def test_no_option_is_unknown_to_this_test(function, command):
    parameters = function.__annotations__.keys() - {"return"}
    assert {f"--{name.replace('_', '-')}" for name in parameters} == set(OPTIONS[command])


@pytest.mark.parametrize(
    ("command", "option", "suffix"),
    [
        (("demo",), "--output", ".png"),
        (("audit",), "--output", ".json"),
        (("audit",), "--picture", ".png"),
        (("reproduce", "correction"), "--output", ".json"),
        (("reproduce", "worst-case"), "--output", ".json"),
        (("reproduce", "worst-case"), "--picture", ".png"),
        (("reproduce",), "--output", ""),
    ],
)
def test_refuses_a_file_that_cannot_be_written_before_the_work(command, option, suffix, tmp_path, monkeypatch):
    def work(*arguments, **options):
        raise AssertionError("the work was begun")

    for module, name in ((cli, "gaussian_mixture"), (correction, "run"), (worst_case, "run"), (report, "run_all")):
        monkeypatch.setattr(module, name, work)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").touch()
    for path in (tmp_path / "file.txt" / f"sub{suffix}", tmp_path / ("long" * 100 + suffix)):
        result = call(*command, option, path)
        assert result.exit_code == 2, result.output
        assert f"Invalid value for {option}: cannot be written" in text(result.output)
    (tmp_path / "file.txt").unlink()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


class TestDemo:
    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, tmp_path_factory):
        path = tmp_path_factory.mktemp("demo") / "new" / "picture.png"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "_GRID_POINTS", 51)
            return call("demo", *TINY, "--output", path), path

    def test_succeeds(self, run):
        result, _ = run
        assert result.exit_code == 0, result.output

    def test_prints_the_summary_and_the_exact_moments(self, run):
        output = run[0].output
        assert "4 chains x 50 draws, N = 20,000 rows" in output
        assert "rows per decision" in output
        for name in ("theta_1", "theta_2"):
            assert re.search(rf"^{name} +-?\d", output, re.MULTILINE)
            for moment in ("mean", "sd"):
                assert re.search(rf"^{name} {moment} +-?\d\.\d+ +-?\d\.\d+ +[+-]\d+\.\d MCSE$", output, re.MULTILINE)

    def test_saves_a_picture_and_says_where(self, run):
        result, path = run
        assert str(path) in result.output
        width, height = png_size(path)
        assert 1000 < width < 3000
        assert 400 < height < 2000
        assert path.stat().st_size > 20_000

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("--rows", 0),
            ("--rows", "many"),
            ("--chains", 0),
            ("--draws", 0),
            ("--warmup", -1),
            ("--step", -0.1),
            ("--step", "nan"),
            ("--batch-size", 0),
            ("--batch-size", 20_001),
            ("--sigma", 0),
            ("--sigma", 3),
            ("--test", "coin"),
            ("--seed", -1),
            ("--output", "picture.docx"),
            ("--colour", "blue"),
        ],
    )
    def test_refuses_a_bad_option_by_name(self, option, value, tmp_path):
        result = call("demo", *TINY, "--output", tmp_path / "picture.png", option, value)
        assert result.exit_code == 2
        assert option in text(result.output)
        assert "Traceback" not in result.output

    def test_refuses_sigma_with_a_test_that_has_its_own(self, tmp_path):
        result = call("demo", *TINY, "--output", tmp_path / "picture.png", "--test", "paper", "--sigma", 1)
        assert result.exit_code == 2
        assert "--sigma" in text(result.output)

    def test_refuses_an_output_below_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        result = call("demo", *TINY, "--output", tmp_path / "file" / "picture.png")
        assert result.exit_code == 2
        assert "--output" in text(result.output)

    def test_passes_on_a_refusal_of_the_library(self, monkeypatch, tmp_path):
        def refuse(*arguments, **options):
            raise ValueError("`sample(...)`: not today.")

        monkeypatch.setattr(cli.tallchain, "sample", refuse)
        result = call("demo", *TINY, "--output", tmp_path / "picture.png")
        assert result.exit_code == 2
        assert "not today" in text(result.output)

    def test_reports_an_interrupted_run(self, monkeypatch, tmp_path):
        monkeypatch.setattr(cli.tallchain, "sample", lambda *_, **__: made_up_trace(is_interrupted=True))
        monkeypatch.setattr(cli, "_GRID_POINTS", 51)
        result = call("demo", *TINY, "--output", tmp_path / "picture.png")
        assert result.exit_code == 0
        assert "INTERRUPTED" in result.output
        assert png_size(tmp_path / "picture.png")

    def test_starts_are_wider_than_the_posterior_around_both_modes(self):
        starts = cli._starts(1000, seed=0)
        assert starts.shape == (1000, 2)
        for first, mode in enumerate([(0, 1), (1, -1)]):
            np.testing.assert_allclose(starts[first::2].mean(0), mode, atol=0.2)
            assert (starts[first::2].std(0) > 0.9).all()

    @pytest.mark.parametrize("test", cli.TestName)
    def test_every_test_can_be_named(self, test):
        assert hasattr(cli._acceptance(test, None), "judge")


def made_up_trace(*, rows: object = 50, **fields: object) -> Trace:
    random = np.random.default_rng(0)
    shape = (2, 10)
    false = np.zeros(shape, bool)
    rows_read = np.broadcast_to(rows, shape)
    position = random.standard_normal((*shape, 2))
    zeros = np.zeros(shape)
    return Trace(position, ~false, rows_read, zeros.astype(int), zeros, false, num_rows=1000, **fields)


class TestFigure:
    @pytest.fixture
    def grid(self) -> Grid:
        x, y = np.linspace(-4, 4, 41), np.linspace(-6, 6, 51)
        return Grid(x, y, -0.5 * (x[:, None] ** 2 + y**2), np.zeros(2), np.eye(2))

    @pytest.mark.parametrize("rows", [50, 1000, np.arange(1, 11) * 100, [50] * 9 + [1000]])
    def test_draws_any_distribution_of_rows(self, rows, grid, tmp_path):
        figure = demo.demo_figure(made_up_trace(rows=rows), grid, temperature=10, test="minibatch test")
        figure.savefig(tmp_path / "a.png")
        assert png_size(tmp_path / "a.png")

    def test_levels_hold_their_shares(self, grid):
        density = np.exp(grid.log_density)
        shares = [density[grid.log_density >= level].sum() / density.sum() for level in levels(grid)]
        np.testing.assert_allclose(shares, [0.99, 0.9, 0.5], atol=0.02)

    def test_thins_to_a_bounded_number_of_points(self, monkeypatch):
        monkeypatch.setattr(demo, "_POINTS", 7)
        assert len(demo._points(made_up_trace())) == 7


class TestReproduceCorrection:
    @pytest.fixture
    def calls(self, monkeypatch) -> list[correction.Config]:
        """Replace the experiment by one that knows the printed numbers, with one of them wrong."""
        calls = []

        def run(config, *, progress):
            calls.append(config)
            progress(0, 2, "half")
            entries = [
                correction.Entry(n, sigma, ridge, printed, 2 * printed if (n, ridge) == (2000, 0.1) else printed)
                for n, sigma in config.columns
                for ridge, printed in correction.PRINTED[n, sigma].items()
            ]
            minimax = [correction.Minimax(sigma, 99, 1e-7, 2e-7) for sigma in sorted({s for _, s in config.columns})]
            progress(2, 2, "done")
            return correction.Result(config, tuple(entries), tuple(minimax), 1.0, {})

        monkeypatch.setattr(correction, "run", run)
        return calls

    def test_prints_the_table_and_saves_the_numbers(self, calls, tmp_path):
        path = tmp_path / "new" / "numbers.json"
        result = call("reproduce", "correction", "--output", path)
        assert result.exit_code == 0, result.output
        assert calls == [correction.Config.paper()]
        assert "4.40e-03 (4.4e-03) =" in result.output
        assert "36 of 40 entries as printed, 0 known to differ, 4 others" in result.output
        assert str(path) in result.output
        assert len(json.loads(path.read_text())["entries"]) == 40

    def test_quick(self, calls, tmp_path):
        result = call("reproduce", "correction", "--quick", "--no-progress", "--output", tmp_path / "numbers.json")
        assert result.exit_code == 0, result.output
        assert calls == [correction.Config.quick()]
        assert "4 of 5 entries as printed" in result.output

    def test_refuses_a_file_that_is_not_json(self, calls, tmp_path):
        result = call("reproduce", "correction", "--output", tmp_path / "numbers.csv")
        assert result.exit_code == 2
        assert "--output" in text(result.output)
        assert not calls


def made_up_worst_case(config: worst_case.Config) -> worst_case.Result:
    """Shares that fall with N: from above the lemma's to none at all."""
    entries = [
        worst_case.Entry(
            *(test, num_rows, 50, 0.005 if test.startswith("austere") else None),
            num_decisions=1000,
            num_full=(500, 9, 0)[min(index, 2)],
            mean_share=0.5,
            mean_share_error=0.01,
            mean_scanned=float(test == "confidence-scan"),
            acceptance=0.7,
            expected_full=None,
            expected_mean=None,
        )
        for test in config.tests
        for index, num_rows in enumerate(config.num_rows)
    ]
    study = [
        worst_case.Point(series, factor, factor, 1.0, config.study_rows, 1000, 0.4 / factor, 0.01, 0.4 / factor, 1.0)
        for series in worst_case.SERIES
        for factor in config.factors
    ]
    return worst_case.Result(config, tuple(entries), tuple(study), 1.0, {})


class TestReproduce:
    @pytest.fixture
    def calls(self, monkeypatch) -> list[tuple]:
        calls = []

        def run_all(is_paper, folder, *, seed, progress):
            calls.append((is_paper, folder, seed))
            progress(1, 2, "mixture: Barker(), 10 trials, 5 of 10 draws")
            return "results"

        def write(results, folder, *, is_paper, seed):
            assert results == "results"
            return folder / "report.html", folder / "report.md"

        monkeypatch.setattr(report, "run_all", run_all)
        monkeypatch.setattr(report, "write", write)
        monkeypatch.setattr(
            report, "main_tables", lambda results: [document.Table(["test", "ours"], [["Barker()", "7"]], "Table 1")]
        )
        return calls

    def test_prints_the_tables_and_says_where_the_report_is(self, calls, tmp_path):
        result = call("reproduce", "--output", tmp_path / "new", "--no-progress")
        assert result.exit_code == 0, result.output
        assert calls == [(False, tmp_path / "new", 0)]
        assert "Table 1" in result.output
        assert "│ Barker() │ 7    │" in result.output
        assert str(tmp_path / "new" / "report.html") in result.output

    def test_paper_with_a_seed(self, calls, tmp_path):
        result = call("reproduce", "--paper", "--seed", 3, "--output", tmp_path)
        assert result.exit_code == 0, result.output
        assert calls == [(True, tmp_path, 3)]

    def test_an_interruption_says_what_is_kept(self, calls, tmp_path, monkeypatch):
        def run_all(*args, **kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(report, "run_all", run_all)
        result = call("reproduce", "--output", tmp_path)
        assert result.exit_code == 1
        assert f"kept in {tmp_path / 'trials'}" in result.output

    def test_refuses_a_folder_that_is_a_file(self, calls, tmp_path):
        (tmp_path / "file").touch()
        result = call("reproduce", "--output", tmp_path / "file")
        assert result.exit_code == 2
        assert "--output" in text(result.output)
        assert not calls


class TestReproduceWorstCase:
    @pytest.fixture
    def calls(self, monkeypatch) -> list[worst_case.Config]:
        calls = []

        def run(config, *, progress):
            calls.append(config)
            progress(0, 2, "half")
            progress(2, 2, "done")
            return made_up_worst_case(config)

        monkeypatch.setattr(worst_case, "run", run)
        return calls

    def test_prints_the_tables_and_saves_numbers_and_picture(self, calls, tmp_path):
        path = tmp_path / "new" / "numbers.json"
        result = call("reproduce", "worst-case", "--output", path)
        assert result.exit_code == 0, result.output
        assert calls == [worst_case.Config.paper()]
        words = text(result.output)
        assert "the lemma's bound is 0.0085" in words
        assert "0.5000 (0.4691-0.5309)" in words
        assert "AustereMH at N = 1,000,000 reads all N rows in 0.0000 of its decisions" in words
        assert str(path) in result.output
        assert str(path.with_suffix(".png")) in result.output
        assert len(json.loads(path.read_text())["entries"]) == 4 * len(worst_case.CONTENDERS)
        width, height = png_size(path.with_suffix(".png"))
        assert 1000 < width < 3000
        assert 400 < height < 2000

    def test_no_cell_of_the_table_is_cut_short(self, calls, tmp_path):
        result = call("reproduce", "worst-case", "--output", tmp_path / "numbers.json")
        assert "…" not in result.output
        for contender in worst_case.CONTENDERS.values():
            assert f"│ {contender.label} " in result.output

    def test_quick_with_a_seed_and_a_picture_elsewhere(self, calls, tmp_path):
        options = ("--quick", "--seed", 7, "--no-progress", "--picture", tmp_path / "b" / "picture.pdf")
        result = call("reproduce", "worst-case", "--output", tmp_path / "a" / "numbers.json", *options)
        assert result.exit_code == 0, result.output
        assert calls == [worst_case.Config.quick(seed=7)]
        assert (tmp_path / "b" / "picture.pdf").read_bytes().startswith(b"%PDF")

    @pytest.mark.parametrize(
        ("option", "value"), [("--output", "numbers.csv"), ("--picture", "picture.docx"), ("--seed", -1)]
    )
    def test_refuses_a_bad_option_by_name(self, option, value, calls, tmp_path):
        result = call("reproduce", "worst-case", "--output", tmp_path / "numbers.json", option, value)
        assert result.exit_code == 2
        assert option in text(result.output)
        assert not calls


@pytest.mark.parametrize("module", ["typer", "matplotlib"])
def test_missing_extra_gives_one_line(module, tmp_path):
    arguments = ["tallchain", "demo", "--output", str(tmp_path / "picture.png")]
    code = f"import sys; sys.modules[{module!r}] = None; sys.argv = {arguments}; from tallchain.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == f"The tallchain command needs {module}: pip install 'tallchain[all]'"
