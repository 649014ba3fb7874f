"""The result of the experiment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tallchain.experiments.document import Table
from tallchain.experiments.gradients.config import Config
from tallchain.experiments.gradients.entries import DigitsEntry, MixtureEntry
from tallchain.experiments.gradients.words import findings, tables


@dataclass(frozen=True)
class Result:
    """The entries, and what produced them."""

    config: Config
    mixture: tuple[MixtureEntry, ...]
    digits: tuple[DigitsEntry, ...]
    seconds: float
    versions: dict[str, str]

    def of(self, name: str) -> list[MixtureEntry]:
        """Return the entries of one sampler on the mixture, by step."""
        return sorted((entry for entry in self.mixture if entry.name == name), key=lambda entry: entry.step)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the draws as plain dictionaries, lists, numbers and strings."""
        return {
            "experiment": "gradients",
            "config": json.loads(json.dumps(asdict(self.config))),
            "mixture": [entry.to_json() for entry in self.mixture],
            "digits": [entry.to_json() for entry in self.digits],
            "seconds": self.seconds,
            "versions": self.versions,
        }

    def to_tables(self) -> list[Table]:
        """Return a table for each task: one line per sampler and step."""
        return tables(self.mixture, self.digits)

    def findings(self) -> list[str]:
        """Return what the numbers say, a sentence or two each."""
        return findings(self.mixture, self.digits)
