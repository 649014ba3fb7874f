"""The command line of the studies."""

from __future__ import annotations

import argparse
import dataclasses
from functools import partial
from typing import Any

import studies
from studies import pages
from studies.study import NAMES, ROOT, DrawnStudy, Result, Study, find, load, missing, path_of


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=(studies.__doc__ or "").splitlines()[0])
    parser.add_argument(
        "name", choices=[*NAMES, "all", "pages"], help="a study, all of them, or `pages` to write the pages of docs/"
    )
    parser.add_argument(
        "--quick", action="store_true", help="at a small size; prints the results, and does not change files"
    )
    parser.add_argument("--draw", action="store_true", help="only draw the pictures, from the result file")
    parser.add_argument("--only", action="append", metavar="SETTING", help="keep the others as they are in the file")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    """Run studies, or write the pages."""
    given = arguments(words)
    if given.name == "pages":
        pages.write()
        return
    for name in NAMES if given.name == "all" else [given.name]:
        study = find(name)
        if given.draw:
            draw(study, load(name))
        elif not (lacking := missing(name)):
            measure(name, study, given)
        elif given.name == "all":
            print(f"{name} is left out: it needs {', '.join(lacking)}.", flush=True)
        else:
            raise SystemExit(f"`{name}` needs {', '.join(lacking)}: pip install -e '.[peers]'.")


def measure(name: str, study: Study, given: argparse.Namespace) -> None:
    """Run a study and print what it found; unless it is a quick run, also save and draw it."""
    config = configured(name, study, given)
    if given.quick:
        result = study.run(config)
    else:
        keep = partial(write, name, load(name) if given.only else None)
        result = study.run(config, keep)
        keep(result)
        draw(study, load(name))
    print("\n\n".join(study.page(result).values()), flush=True)


def configured(name: str, study: Study, given: argparse.Namespace) -> Any:
    """Return the sizes asked for, and the settings if some are named."""
    config: Any = study.Config.quick() if given.quick else study.Config()
    if not given.only:
        return config
    if not hasattr(config, "settings"):
        raise SystemExit(f"--only: `{name}` has no settings to choose from.")
    known: Any = study.Config()
    unknown = [setting for setting in given.only if setting not in known.settings]
    if unknown:
        raise SystemExit(f"--only {' '.join(unknown)}: no such setting. There are: {'; '.join(known.settings)}.")
    return dataclasses.replace(config, settings=tuple(given.only))


def write(name: str, before: Result | None, result: Result) -> None:
    """Write a result over an earlier one."""
    (result if before is None else result.over(before)).write(path_of(name))


def draw(study: Study, result: Result) -> None:
    """Draw the pictures of a study into docs/."""
    if isinstance(study, DrawnStudy):
        for name, figure in study.pictures(result).items():
            figure.savefig(ROOT / "docs" / f"{name}.png")


if __name__ == "__main__":
    main()
