"""Pieces of HTML: everything that comes from the user is escaped here."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Sequence

UNKNOWN, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def text(value: object) -> str:
    """Escape a value."""
    return html.escape(str(value))


def tag(name: str, inner: str, **attributes: str) -> str:
    """Put HTML into an element; `class_` is the class."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items() if value
    )
    return f"<{name}{given}>{inner}</{name}>"


def paragraph(value: object, class_: str = "") -> str:
    """One paragraph of text."""
    return tag("p", text(value), class_=class_)


def items(values: Iterable[str], **attributes: str) -> str:
    """A list of HTML."""
    return tag("ul", "".join(tag("li", value) for value in values), **attributes)


def definitions(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and what they stand for."""
    return tag("dl", "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of HTML cells that scrolls by itself if it is wide; the first cell of a line is its name."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join(f'<tr><th scope="row">{first}</th>{"".join(rest)}</tr>' for first, *rest in rows)
    inner = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return tag("div", inner, class_="wide", tabindex="0")


def cell(value: str, class_: str = "") -> str:
    """One cell of numbers."""
    return tag("td", text(value), class_=class_)


def folded(summary: str, inner: str) -> str:
    """HTML that opens on demand."""
    return f"<details><summary>{text(summary)}</summary>{inner}</details>"


def picture(svg: str, words: str, caption: str) -> str:
    """A picture on a light plate, in dark pages too; `words` say what it shows to those who do not see it."""
    data = base64.b64encode(svg.encode()).decode()
    image = f'<img alt="{text(words)}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure><div class="plate">{image}</div><figcaption>{text(caption)}</figcaption></figure>'


# ---- numbers -----------------------------------------------------------------------------------


def decimals(sd: float) -> int:
    """Decimals that show three digits of a standard deviation."""
    if not (math.isfinite(sd) and sd > 0):
        return 3
    return int(min(max(2 - math.floor(math.log10(sd)), 0), 9))


def number(value: float, digits: int) -> str:
    """A number with so many decimals."""
    return f"{value:,.{digits}f}".replace("-", MINUS) if math.isfinite(value) else UNKNOWN


def seconds(value: float) -> str:
    """A time."""
    if value < 100:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.1f} min" if value < 6000 else f"{value / 3600:.1f} h"


def share(value: float) -> str:
    """A share in per cent."""
    if value <= 0:
        return "0 %"
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.2g} %" if value > 1e-6 else "less than 0.0001 %"
