"""What the commands share: refusals in one line, before the work is done."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

with contextlib.suppress(ModuleNotFoundError):  # `require` says what is missing
    import typer

    # Options that several commands share.
    Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")]
    Numbers = Annotated[Path, typer.Option(dir_okay=False, help="Where to save the numbers, as JSON.")]
    Picture = Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Where to save the picture.", show_default="in the same folder as the numbers, as PNG"
        ),
    ]
    Memory = Annotated[str, typer.Option(help="Of the rows of a packed table that are in memory at a time, about.")]
    NoProgress = Annotated[bool, typer.Option("--no-progress", help="Show no progress bar.")]


BAD_INPUT, INTERRUPTED = 2, 130
"""Exit codes."""


def require(*modules: str) -> None:
    """Exit with one line that says what to install if a module is missing."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            sys.exit(f"The tallchain command needs {module}: pip install 'tallchain[all]'")


def prepare(output: Path, extensions: list[str], option: str = "--output") -> None:
    """Refuse a file that cannot be written, before the work is done."""
    if output.suffix.removeprefix(".").lower() not in extensions:
        raise typer.BadParameter(f"must end in .{', .'.join(extensions)}; got {output}.", param_hint=option)
    check_writable(output, option)


def check_writable(path: Path, option: str) -> None:
    """Make the folder of a file, and refuse the file if it cannot be opened; nothing is left behind."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise typer.BadParameter(f"cannot be written: {error}.", param_hint=option) from error


@contextlib.contextmanager
def refusals(option: str | None = None) -> Generator[None]:
    """Turn a refusal of the library into an error about the option it came from."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def save_numbers(numbers: dict[str, Any], output: Path) -> None:
    """Write a result as JSON, and say where it is."""
    output.write_text(json.dumps(numbers, indent=2) + "\n")
    print(f"numbers              {output}")


@contextlib.contextmanager
def one_line_errors(*others: type[Exception]) -> Generator[None]:
    """Say what is wrong in one line, and exit: bad values, files that cannot be read or written, and other errors."""
    try:
        yield
    except KeyboardInterrupt:
        print("Interrupted: nothing was written.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, TypeError, OSError, *others) as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from error


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Say what could not be written, and why; what was there before is still there."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error).strip().rstrip(".")
        raise ValueError(f"{path} cannot be written: {why}. Choose a place that can be, with room for it.") from error
