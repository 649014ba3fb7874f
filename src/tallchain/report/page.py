"""The report of a fit as one page of HTML: no script, no network, pictures within."""

from __future__ import annotations

from tallchain.report import account, estimates
from tallchain.report.facts import Advice, Facts
from tallchain.report.html import definitions, paragraph, tag, text
from tallchain.report.pictures import Pictures
from tallchain.report.style import STYLE
from tallchain.report.trust import MARKS, verdict

_NOTHING = Pictures()


def page(facts: Facts, pictures: Pictures = _NOTHING) -> str:
    """Return the page: what was fitted, how far to trust it, what came out, what it cost, and how to repeat it.

    Args:
        facts: everything that is said.
        pictures: what `pictures.draw` has drawn; the page does without those that are None.
    """
    body = [
        _fitted(facts),
        _trust(facts),
        _advice(facts),
        estimates.coefficients(facts, pictures),
        estimates.group_effects(facts, pictures),
        account.convergence(facts, pictures),
        account.predictive(facts, pictures),
        account.audited(pictures),
        account.cost(facts, pictures),
        account.choices(facts),
        account.repeating(facts),
        account.citing(facts),
        tag("footer", paragraph("Made by tallchain. The page needs no network and no script.", "soft")),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(facts.title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>{"".join(body)}</main></body></html>\n'


def _fitted(facts: Facts) -> str:
    formula = tag("p", tag("code", text(facts.formula)), class_="formula") if facts.formula else ""
    equation = tag("pre", text("\n".join(facts.equation))) if facts.equation else ""
    rows = f"{facts.num_rows:,}"
    if facts.num_dropped:
        by = ", ".join(f"{name}: {count:,}" for name, count in facts.dropped.items())
        rows += f" ({facts.num_dropped:,} more were left out, for missing values{by and f': {by}'})"
    pairs = [("rows", rows), ("family", facts.family)]
    pairs += [("" if at else "prior", line) for at, line in enumerate(facts.priors)]
    words = paragraph(" ".join([facts.words, *facts.coding]))
    return tag("header", f"<h1>{text(facts.title)}</h1>{formula}{words}{equation}{definitions(pairs)}")


def _trust(facts: Facts) -> str:
    found = verdict(facts)
    lines = "".join(
        tag("li", f'<span class="mark {line.level}">{MARKS[line.level]}</span>{text(line.words)}')
        for line in found.lines
    )
    head = tag("p", f"{MARKS[found.level]} {text(found.head)}", class_="head")
    inner = f"<h2>How far to trust it</h2>{head}{tag('ul', lines, class_='marks')}"
    return tag("section", inner, class_=f"box {found.level}")


def _advice(facts: Facts) -> str:
    if not facts.advice:
        return ""
    first = sorted(facts.advice, key=lambda each: not each.is_grave)
    return tag("section", f"<h2>What to do</h2>{tag('ul', ''.join(map(_advised, first)), class_='advice')}")


def _advised(of: Advice) -> str:
    what = tag("span", text(f"Serious: {of.what}" if of.is_grave else of.what), class_="what")
    return tag("li", f"{what}<br>{text(of.remedy)}", class_="bad" if of.is_grave else "")
