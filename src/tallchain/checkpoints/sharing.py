"""What only the first of several processes does with a checkpoint, and how the others learn of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from tallchain.checkpoints.container import CheckpointError
from tallchain.crew import current

Contents = tuple[dict[str, Any], dict[str, np.ndarray]]
"""Facts, as JSON has them, and arrays by name."""


def on_first(do: Callable[[], Contents]) -> Contents:
    """Return what something returns on the first process, or the only one; if it fails there, it fails on all.

    All processes must call it. The others need not see the folder.
    """
    crew = current()
    if crew is None:
        return do()
    (facts, arrays), failed = ({}, {}), None
    if crew.rank == 0:
        try:
            facts, arrays = do()
        except Exception as error:
            failed = error
    said = {"facts": facts, "names": list(arrays), "failed": failed and str(failed)}
    head = np.frombuffer(json.dumps(said).encode(), np.uint8)
    head, *leaves = crew.from_first("the checkpoint", [head, *arrays.values()])
    if failed is not None:
        raise failed
    said = json.loads(head.tobytes())
    if said["failed"] is not None:
        raise CheckpointError(f"process 0: {said['failed']}")
    return said["facts"], dict(zip(said["names"], leaves, strict=True))
