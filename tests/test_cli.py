"""The command line, from its help texts to the picture."""

import re
import subprocess
import sys

import numpy as np
import pytest

from commands import call, made_up_trace, png_size, text
from tallchain import __version__, cli
from tallchain.experiments import correction, gradients, report, worst_case

TINY = ("--rows", "20000", "--chains", "4", "--draws", "50", "--warmup", "20", "--no-progress")
OPTIONS = {
    (): ["--version"],
    ("demo",): [
        *("--rows", "--chains", "--draws", "--warmup", "--step", "--batch-size", "--sigma", "--test", "--seed"),
        *("--output", "--no-progress"),
    ],
    ("reproduce",): ["--paper", "--output", "--seed", "--no-progress", "correction", "worst-case", "gradients"],
    ("reproduce", "correction"): ["--output", "--quick", "--no-progress"],
    ("reproduce", "worst-case"): ["--output", "--picture", "--quick", "--seed", "--no-progress"],
    ("reproduce", "gradients"): ["--output", "--picture", "--quick", "--seed", "--no-progress"],
}


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
        (cli.reproduce_gradients, ("reproduce", "gradients")),
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
        (("reproduce", "gradients"), "--output", ".json"),
        (("reproduce", "gradients"), "--picture", ".png"),
        (("reproduce",), "--output", ""),
    ],
)
def test_refuses_a_file_that_cannot_be_written_before_the_work(command, option, suffix, tmp_path, monkeypatch):
    def work(*arguments, **options):
        raise AssertionError("the work was begun")

    experiments = (correction, worst_case, gradients)
    for module, name in ((cli, "gaussian_mixture"), *((each, "run") for each in experiments), (report, "run_all")):
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


@pytest.mark.parametrize("module", ["typer", "matplotlib"])
def test_missing_extra_gives_one_line(module, tmp_path):
    arguments = ["tallchain", "demo", "--output", str(tmp_path / "picture.png")]
    code = f"import sys; sys.modules[{module!r}] = None; sys.argv = {arguments}; from tallchain.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == f"The tallchain command needs {module}: pip install 'tallchain[all]'"
