"""A report of paragraphs, tables and pictures, as Markdown with pictures in the same folder or as one page of HTML."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table as RichTable

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; padding-bottom: .3rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; margin: 1rem 0; }
th, td { border: 1px solid #ddd; padding: .25rem .6rem; text-align: left; } th { background: #f4f4f4; }
td { white-space: nowrap; } caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
.below { font-size: .9rem; color: #555; margin-top: 0; } figure { margin: 1.5rem 0; }
img { max-width: 100%; height: auto; } figcaption { font-size: .9rem; color: #555; }
"""


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells by row, under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    """What its columns and signs mean."""

    @classmethod
    def of(cls, table: RichTable) -> Table:
        """The same as a table for the terminal."""
        columns = [[str(cell) for cell in column.cells] for column in table.columns]
        header, rows = [str(column.header) for column in table.columns], list(zip(*columns, strict=True))
        return cls(header, rows, str(table.title or ""), str(table.caption or ""))

    def to_rich(self) -> RichTable:
        """The same for the terminal."""
        from rich.table import Table as RichTable

        table = RichTable(title=self.title or None, caption=self.caption or None)
        for number, header in enumerate(self.header):
            table.add_column(header, no_wrap=number == 0)  # names must not be cut short
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """Lines with bars."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return "\n\n".join(part for part in (self.title and f"**{self.title}**", table, self.caption) if part)

    def to_html(self) -> str:
        """A table that scrolls by itself if it is wide."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        below = f'<p class="below">{html.escape(self.caption)}</p>' if self.caption else ""
        return f'<div class="wide"><table>{title}<tr>{head}</tr>{body}</table></div>{below}'


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure with a caption."""

    name: str
    """Of its file, without extension."""
    caption: str
    figure: Figure

    def to_png(self) -> bytes:
        """The picture as a file's content."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png")
        return buffer.getvalue()


Part = str | Table | Picture


@dataclasses.dataclass(frozen=True)
class Section:
    """Parts under a heading."""

    title: str
    parts: Sequence[Part]


@dataclasses.dataclass(frozen=True)
class Document:
    """Sections under a title."""

    title: str
    sections: Sequence[Section]

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write report.html, which has the pictures in it, and report.md, with the pictures in the same folder."""
        folder.mkdir(parents=True, exist_ok=True)
        pictures = {
            part.name: part.to_png() for section in self.sections for part in section.parts if isinstance(part, Picture)
        }
        for name, content in pictures.items():
            (folder / f"{name}.png").write_bytes(content)
        page, text = folder / "report.html", folder / "report.md"
        page.write_text(self._to_html(pictures))
        text.write_text(self._to_markdown())
        return page, text

    def _to_markdown(self) -> str:
        lines = [f"# {self.title}"]
        for section in self.sections:
            lines.append(f"## {section.title}")
            for part in section.parts:
                match part:
                    case str():
                        lines.append(part)
                    case Table():
                        lines.append(part.to_markdown())
                    case Picture():
                        lines.append(f"![{part.caption}]({part.name}.png)\n\n*{part.caption}*")
        return "\n\n".join(lines) + "\n"

    def _to_html(self, pictures: dict[str, bytes]) -> str:
        body = [f"<h1>{html.escape(self.title)}</h1>"]
        for section in self.sections:
            body.append(f"<h2>{html.escape(section.title)}</h2>")
            for part in section.parts:
                match part:
                    case str():
                        body.append(f"<p>{html.escape(part)}</p>")
                    case Table():
                        body.append(part.to_html())
                    case Picture():
                        image = base64.b64encode(pictures[part.name]).decode()
                        caption = html.escape(part.caption)
                        body.append(
                            f'<figure><img alt="{caption}" src="data:image/png;base64,{image}">'
                            f"<figcaption>{caption}</figcaption></figure>"
                        )
        head = f'<meta charset="utf-8"><title>{html.escape(self.title)}</title><style>{_STYLE}</style>'
        return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'
