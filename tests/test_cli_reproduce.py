"""The commands that repeat the experiments of the paper."""

import json
import sys

import numpy as np
import pytest

from commands import call, png_size, text
from tallchain.experiments import correction, document, gradients, report, worst_case
from tallchain.experiments.gradients import CONTENDERS
from tallchain.experiments.gradients.entries import Cost, Ratio
from tallchain.experiments.logistic_regression import Found
from tallchain.experiments.trials import Rows


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

    @pytest.mark.parametrize("command", ["correction", "worst-case", "gradients"])
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--output", "new"), "Put it after the command: `tallchain reproduce {} --output ...`"),
            (("--seed", 0), "Put it after the command: `tallchain reproduce {} --seed ...`"),
            (("--no-progress",), "Put it after the command: `tallchain reproduce {} --no-progress ...`"),
            (("--seed", 1, "--paper"), "`tallchain reproduce {}` has the paper's sizes unless --quick is given"),
        ],
    )
    def test_refuses_options_before_the_command_of_one_experiment(self, options, words, command, calls, monkeypatch):
        for module in (correction, worst_case, gradients):
            monkeypatch.setattr(module, "run", lambda *_, **__: pytest.fail("an experiment ran"))
        result = call("reproduce", *options, command)
        assert result.exit_code == 2
        assert words.format(command) in text(result.output)
        assert next(each for each in reversed(options) if str(each).startswith("--")) in text(result.output)


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


def made_up_gradients(config: gradients.Config) -> gradients.Result:
    """Variances that are right with a test, and 1 + step without."""
    mixture = [
        gradients.MixtureEntry(
            *(name, step, 100, 0.4, Cost(200, 100)),
            Ratio(1 if CONTENDERS[name].is_corrected else 1 + step, 0.01),
            *(None, Ratio(1, 0.05), 0.2, 0.1, np.array([1e3, 1e6])),
            np.full((4, 2), [0.8, 0.2]) / (1 + 0.01 * len(name)),
        )
        for name, steps in config.mixture.steps.items()
        for step in steps
    ]
    accuracy, read = np.full((2, 10), 0.96), np.full((2, 10), 300.0)
    rows = Rows(300.0, 0.0, 0.0, [300.0, 300.0])
    digits = [
        gradients.DigitsEntry(name, step, Cost(200, 100), Found(name, None, rows, 0.4, accuracy, read))
        for name, steps in config.digits.steps.items()
        for step in steps
    ]
    return gradients.Result(config, tuple(mixture), tuple(digits), 1.0, {})


class TestReproduceGradients:
    @pytest.fixture
    def calls(self, monkeypatch) -> list[gradients.Config]:
        calls = []

        def run(config, *, progress):
            calls.append(config)
            progress(1, 2, "half")
            return made_up_gradients(config)

        monkeypatch.setattr(gradients, "run", run)
        return calls

    def test_prints_the_tables_and_saves_numbers_and_picture(self, calls, tmp_path):
        path = tmp_path / "new" / "numbers.json"
        result = call("reproduce", "gradients", "--output", path)
        assert result.exit_code == 0, result.output
        assert calls == [gradients.Config.paper()]
        words = text(result.output)
        assert "SGLD's variance in the narrow direction is 1.030 ± 0.010 times the exact one at step 0.03" in words
        assert "no visible error, at any step" in words
        assert "0 of 13 runs with a test" in words
        assert "…" not in result.output
        for name in gradients.CONTENDERS:
            assert f"│ {name} " in result.output
        numbers = json.loads(path.read_text())
        assert {entry["name"] for entry in numbers["digits"]} == set(gradients.CONTENDERS) - {"SGFS"}
        width, height = png_size(path.with_suffix(".png"))
        assert 1000 < width < 3000
        assert 400 < height < 2000

    def test_quick_with_a_seed_and_a_picture_elsewhere(self, calls, tmp_path):
        options = ("--quick", "--seed", 7, "--no-progress", "--picture", tmp_path / "b" / "picture.pdf")
        result = call("reproduce", "gradients", "--output", tmp_path / "a" / "numbers.json", *options)
        assert result.exit_code == 0, result.output
        assert calls == [gradients.Config.quick(seed=7)]
        assert (tmp_path / "b" / "picture.pdf").read_bytes().startswith(b"%PDF")

    @pytest.mark.parametrize("command", [("reproduce",), ("reproduce", "gradients")])
    def test_says_what_to_install(self, command, calls, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "blackjax", None)
        suffix = ("--output", tmp_path / ("numbers.json" if len(command) > 1 else "new"))
        result = call(*command, *suffix)
        assert result.exit_code == 1
        assert "needs blackjax: pip install 'tallchain[all]'" in text(result.output)
        assert not calls
