"""The result of the experiment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tallchain.experiments.worst_case.config import Config
from tallchain.experiments.worst_case.contenders import LEMMA
from tallchain.experiments.worst_case.entries import Entry, Point
from tallchain.experiments.worst_case.words import findings, study_table, table

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Result:
    """The entries, the study of temperature and step, and what produced them."""

    config: Config
    entries: tuple[Entry, ...]
    study: tuple[Point, ...]
    seconds: float
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain dictionaries, lists, numbers and strings."""
        entries = [
            asdict(entry)
            | {
                "label": entry.label,
                "full_share": entry.full_share,
                "full_share_limits": list(entry.full_share_limits),
                "verdict": entry.verdict,
            }
            for entry in self.entries
        ]
        config = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self.config).items()}
        return {
            "experiment": "worst-case",
            "config": config,
            "lemma": LEMMA,
            "entries": entries,
            "study": [asdict(point) for point in self.study],
            "seconds": self.seconds,
            "versions": self.versions,
        }

    def to_table(self) -> Table:
        """Return a `rich` table: one line per test and N."""
        return table(self.config, self.entries)

    def to_study_table(self) -> Table:
        """Return a `rich` table: the minibatch test's share of rows against temperature and step."""
        return study_table(self.config, self.study)

    def of(self, test: str) -> list[Entry]:
        """Return the entries of one test, by N."""
        return [entry for entry in self.entries if entry.test == test]

    def findings(self) -> list[str]:
        """Return what the numbers say, a sentence or two each."""
        return findings(self.config, self.entries, self.study)
