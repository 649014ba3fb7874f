"""The command, called in this process; and a trace for it."""

import re
from pathlib import Path

import numpy as np
from typer.testing import CliRunner, Result

from tallchain import cli
from tallchain.checking.trace import Trace


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


def made_up_trace(*, rows: object = 50, **fields: object) -> Trace:
    random = np.random.default_rng(0)
    shape = (2, 10)
    false = np.zeros(shape, bool)
    rows_read = np.broadcast_to(rows, shape)
    position = random.standard_normal((*shape, 2))
    zeros = np.zeros(shape)
    return Trace(position, ~false, rows_read, zeros.astype(int), zeros, false, num_rows=1000, **fields)
