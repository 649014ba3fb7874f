"""What the README shows is run, and its figures are those of the result files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks import pages

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_snippets_run(capsys: pytest.CaptureFixture) -> None:
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert snippets
    names: dict[str, object] = {}  # one after another, as a reader would
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "rows per decision" in printed
    assert "NO ERROR FOUND" in printed
    assert "chosen: order 2" in printed


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_figures_are_those_of_the_result_files(page: Path) -> None:
    assert pages.fill(page.read_text()) == page.read_text()


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in pages.PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)


def test_the_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
