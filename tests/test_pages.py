"""Pages whose short examples are run; on regressions, the table of families is complete and long examples parse."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from studies.flights.snippets import PAGES, blocks
from studies.study import find, load
from tallchain.models import families
from tallchain.models.families import Family

DOCS = Path(__file__).parents[1] / "docs"
NAMED = [name for name in families.__all__ if issubclass(getattr(families, name), Family) and name != "Family"]


@pytest.mark.parametrize("page", [*PAGES, "stochastic-gradients.md", "from-blackjax.md"])
def test_short_examples_work(page: str) -> None:
    pytest.importorskip("pandas" if page in PAGES else "blackjax")
    found = doctest.testfile(str(DOCS / page), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", ["gradient-proposals.md", "long-runs.md", "own-model.md", "from-numpyro.md", "scale.md"]
)
def test_long_examples_work(page: str) -> None:
    if page == "from-numpyro.md":
        pytest.importorskip("numpyro")
    found = doctest.testfile(str(DOCS / page), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


@pytest.mark.parametrize("name", NAMED)
def test_every_family_has_a_row_in_the_table(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}\(.*", (DOCS / "regressions.md").read_text(), re.MULTILINE)
    family = getattr(families, name)
    family = family(levels=4) if name in ("Ordinal", "Categorical") else family()
    assert [shared for shared in family.shared[:2] if f"`{shared}`" not in row] == []
    assert (f'link="{getattr(family, "link", None)}"' in row) == (name == "Bernoulli")


def test_what_long_examples_print_is_on_file() -> None:
    """The study runs them: they need packages of the extra `peers`."""
    printed = {piece for code, piece in blocks() if compile(code, "a block", "exec") and piece}
    assert len(printed) > 5
    assert printed == load("flights").results["printed"].keys()
    assert printed <= find("flights").page(load("flights")).keys()
