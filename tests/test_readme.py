"""What the README shows is run, and its figures are those of the result files."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from studies import pages

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("num_rows", ["20_000", pytest.param("200_000", marks=pytest.mark.slow)])
def test_snippets_run(num_rows: str, tmp_path: Path) -> None:
    """One after another, as a reader would, in a Python of their own; in `make test-slow` on all rows."""
    text = README + "".join((ROOT / "docs" / page).read_text() for page in ("own-model.md", "parts.md"))
    snippets = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert "200_000" in snippets
    (tmp_path / "readme.py").write_text(snippets.replace("200_000", num_rows))
    command = [sys.executable, "-W", "error", "readme.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rows per decision" in done.stdout
    assert "NO ERROR FOUND" in done.stdout


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


def test_the_programs_that_are_named_exist() -> None:
    texts = [(ROOT / name).read_text() for name in ("Makefile", "CONTRIBUTING.md")]
    modules = set(re.findall(r"-m ((?:benchmarks|studies)[\w.]*)", "\n".join(texts)))
    assert {"benchmarks.lockstep", "studies"} <= modules
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []
