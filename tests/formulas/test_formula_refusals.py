"""What a formula may not be: each error quotes the formula, says what is wrong, and what there is."""

from __future__ import annotations

import numpy as np
import pytest
from formula_rows import built, rows

from tallchain.formulas import FormulaError, build
from tallchain.tables import open_table

pytestmark = pytest.mark.usefixtures("small_blocks")

REFUSED = {
    "y": 'a formula is "outcome ~ features"',
    "~ x1": 'a formula is "outcome ~ features"',
    "y ~ x1 ~ x2": "with one `~`",
    "y ~": "the right side is empty; write `y ~ 1`",
    "y ~ x1 +": "`\\+` in `x1 \\+` is followed by nothing",
    "y ~ (x1": "has no closing \\)",
    "y ~ x1)": "`\\)` in `y ~ x1\\)` closes nothing",
    "y ~ `x1": "has no closing `",
    "y ~ 0": "without an intercept there must be a feature",
    "y ~ 0 + (1 | hour)": "without an intercept there must be a feature",
    "y ~ xx1": "there is no column 'xx1'; the nearest: 'x1'",
    "y ~ log(xx1)": "there is no column 'xx1' \\(in `log\\(xx1\\)`\\); the nearest: 'x1'",
    "y ~ s(x1)": "a formula has no `s\\(x1\\)`; for a smooth curve use bs\\(x1, df=5\\) or poly\\(x1, 3\\)",
    "y ~ as.factor(hour)": "a formula has no `as.factor\\(hour\\)`; write `C\\(hour\\)`",
    "y ~ x1 + factor(hour):x2": "a formula has no `factor\\(hour\\)`; write `C\\(hour\\)`",
    "y ~ relevel(factor(hour), ref=2)": "write `C\\(hour, Treatment\\(level\\)\\)`",
    "y ~ ordered(`hour`)": "write `C\\(`hour`, contr.poly\\)`",
    "y ~ as.numeric(hour)": "is used as it is, `hour`",
    "y ~ x1 + x2^2": "`x2\\^2` is `x2` crossed with itself, so `x2` alone; write `I\\(x2\\*\\*2\\)`",
    "y ~ (`a b`**2 + x1)": "write `I\\(`a b`\\*\\*2\\)` for the power",
    "y ~ (1 | factor(hour))": "must be a column, of labels or numbers; write `hour` alone",
    "y ~ (0 + x1 | hour)": "has no intercept, and groups with slopes have one here; write `\\(x1 \\| hour\\)`",
    "cbind(hits, tries) ~ x1": "write `p\\(hits, hits \\+ tries\\)`, successes and all trials",
    "Surv(w, late) ~ x1": "write `censored\\(w, late\\)`",
    "hits | trials(tries) ~ x1": "write `p\\(hits, tries\\)`",
    "y | weights(w) ~ x1": 'weights are an argument; write `y ~ ...` and `weights="w"`',
    "y ~ lag(x1)": "calls `lag`, and a formula knows .*compute other columns before",
    "y ~ log(carrier)": "`log\\(carrier\\)` needs numbers, and column 'carrier' holds text; write C\\(carrier\\)",
    "y ~ day": "`day` needs numbers, and column 'day' holds times",
    "y ~ log(x1, 2)": "calls `log` with other arguments than it takes",
    "y ~ poly(x1, degrees=2)": "`poly` takes degree, raw besides its first argument",
    "y ~ poly(x1, 10000)": "10000 is too large for `poly`",
    "y ~ poly(x1, x2)": "an argument that must be a plain number",
    "y ~ bs(x1, df=1)": "`bs\\(x1, df=1\\)` cannot be computed: .*`df` must be greater than 3",
    "y ~ 2:x1": "multiplies a term by a number; write `I\\(2 \\* x\\)`",
    "y ~ x1 > 3": "is not a sum of terms",
    "y ~ x1 x2": "is not a sum of terms",
    "y ~ I(x1 +)": "`I\\(x1 \\+\\)` is not a sum of terms: invalid syntax",
    "y ~ I(C(hour))": "has `C\\(...\\)`, which stands on its own",
    "y ~ C(hour + 1)": "must be `C\\(column\\)`",
    "y ~ C(hour, Fancy)": "a coding is one of Treatment\\(level\\)",
    "y ~ C(hour, Treatment(9))": "has no level 9; there are '0', '1', '2', '3'",
    "y ~ C(hour, contr.sum(3))": "only Treatment takes an argument",
    "y ~ C(hour, levels=[0, 1])": "leaves out the level 2; list all levels or none",
    "y ~ C(hour, base=2)": "C takes contrasts and levels, and no 'base'",
    "y ~ C(x1)": "'x1' has more than 2,000 levels, .*write `\\(1 \\| x1\\)`",
    "y ~ one": "no column may be determined by others",
    "y ~ C(one)": "has one level, 1; leave it out",
    "y ~ hour + `hour` + C(hour) + C(hour, Treatment(1))": "two columns would be called 'hour\\[2\\]'",
    "y ~ offset(carrier)": "needs numbers, and column 'carrier' holds text",
    "y ~ offset(poly(x1, 2))": "an offset is one number for each row",
    "y ~ - offset(e)": "can only be added",
}

DANGEROUS = [
    "__import__('os').system('true')",
    "I(__import__('os'))",
    "x1.__class__",
    "log.__globals__",
    "np.load('x')",
    "np.lib.npyio.os.system('true')",
    "I((lambda: x1)())",
    "I([v for v in x1])",
    "I(x1[0])",
    "{x1.sum()}",
    "I(f'{x1}')",
    "I(x1 if late else x2)",
    "I(x2 := x1)",
    "eval('x1')",
    "Q('x1')",
    "hashed(carrier)",
    "poly(x1, _state={})",
    "scale(x1, **{'ddof': 0})",
    "C(hour, contr.custom([1]))",
    "C(hour, __import__('os'))",
    "I('a' * 10)",
    "I(x1 is late)",
    "I(await_)",
]


@pytest.mark.parametrize("formula", REFUSED)
def test_refusals(formula: str) -> None:
    from tallchain.models import Prior, priors

    size = 2500 if "C(x1)" in formula else 500
    prior = Prior(priors.Flat(), priors.Flat()) if formula == "y ~ one" else None
    with pytest.raises(FormulaError, match=REFUSED[formula]) as caught:
        built(formula, rows(size=size).assign(one=1), prior=prior)
    assert str(caught.value).startswith(f'`fit("{formula}")`: ')
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", DANGEROUS)
def test_nothing_of_a_formula_is_evaluated_as_python(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.eval", lambda *_: pytest.fail("evaluated"))
    for formula in (f"y ~ {text}", f"y ~ offset({text})", f"y ~ ({text} | carrier)", f"{text} ~ x1"):
        with pytest.raises(FormulaError):
            built(formula)


def test_harmless_formulas_are_not_evaluated_as_python_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.eval", lambda *_: pytest.fail("evaluated"))
    built("y ~ poly(x1, 2) * C(hour) + log(w) + (1 + I(x1 ** 2) | carrier)")


def test_what_is_no_formula() -> None:
    for given in (None, 3, ["y", "x"]):
        with pytest.raises(TypeError, match='needs a formula such as "y ~ x'):
            build(given, open_table(rows()), "gaussian")  # type: ignore[arg-type]


def test_labels_are_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallchain.formulas.learning.MOST_LEVELS", 50)
    with pytest.raises(FormulaError, match="column 'x1' has more than 2,000 levels"):
        built("y ~ C(x1)")
    assert len(built("y ~ (1 | x1)").model.levels["x1"]) == 500


def test_libraries_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_table(rows())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"`fit\(\.\.\.\)` needs formulaic and pandas: pip install"):
        build("y ~ x1", opened, "gaussian")
    with pytest.raises(ImportError, match=r"`fit\(data=\.\.\.\)` needs pandas and pyarrow: pip install"):
        open_table(rows())


def test_arguments() -> None:
    with pytest.raises(FormulaError, match=r"no column 'k' \(in `weights='k'`\)"):
        built("y ~ x1", weights="k")
    with pytest.raises(FormulaError, match="`offset='carrier'` must be a column of numbers; it holds text"):
        built("y ~ x1", offset="carrier")
    with pytest.raises(TypeError, match="`weights` must be the name of a column"):
        built("y ~ x1", weights=np.ones(500))
    with pytest.raises(FormulaError, match="`weights='x1'` must be at least 0"):
        built("y ~ x2", weights="x1")


def test_expressions_that_nest_too_deeply() -> None:
    with pytest.raises(FormulaError, match="nested too deeply"):
        built("y ~ I(" + "-" * 200 + "x1)")
    with pytest.raises(FormulaError):
        built("y ~ I(" + "(" * 5000 + "x1" + ")" * 5001)


def test_a_bar_or_a_tilde_in_quotes_is_text() -> None:
    frame = rows().rename(columns={"x1": "a|b", "x2": "c~d"})
    assert built("y ~ `a|b` + `c~d`", frame).model.names == ("(intercept)", "a|b", "c~d")


def test_large_numbers_as_labels() -> None:
    frame = rows().assign(number=np.where(np.arange(500) % 2, 2.0**60, 2.0**61))
    with pytest.raises(FormulaError, match="column 'number': labels above 2\\^53"):
        built("y ~ (1 | number)", frame)
    exact = rows().assign(number=np.where(np.arange(500) % 2, 2**60, 2**60 + 1))
    assert built("y ~ (1 | number)", exact).model.levels["number"].tolist() == [2**60, 2**60 + 1]
