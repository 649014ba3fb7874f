"""The sections of the page about how it was done: convergence, check, cost, choices, and how to repeat and cite it."""

from __future__ import annotations

import re

from tallchain.plots.style import SERIES
from tallchain.report.facts import Facts
from tallchain.report.html import definitions, items, number, paragraph, picture, seconds, share, table, tag, text
from tallchain.report.pictures import Pictures

_FINDING = re.compile(r"^(\S.{0,19}?)\s{2,}(\S.*)$")


def convergence(facts: Facts, pictures: Pictures) -> str:
    """Whether the chains agree."""
    of = facts.convergence
    said = (
        f"{of.num_chains} chains of {of.num_draws:,} draws each; {share(of.acceptance)} of the candidates were "
        f"accepted. The worst R-hat is {of.worst_r_hat:.3f} ({of.worst_r_hat_of}), the fewest effective draws are "
        f"{of.worst_ess:,.0f} ({of.worst_ess_of})."
    )
    drawn = [
        picture(svg, words, caption)
        for svg, words, caption in (
            (pictures.traces, "Draws by chain.", "Draws of each chain: bands without a trend, one on the other."),
            (pictures.ranks, "Ranks by chain.", "Ranks by chain: even, mostly within the grey band, if chains agree."),
        )
        if svg
    ]
    return _section("Convergence", paragraph(said) + tag("div", "".join(drawn), class_="pictures"))


def predictive(facts: Facts, pictures: Pictures) -> str:
    """Whether outcomes look like those of the model; nothing if that was not checked."""
    check = facts.predictive
    if check is None:
        return ""
    said = (
        f"For {check.num_rows:,} of the {check.num_data:,} rows, outcomes were drawn from the fitted model "
        f"{check.num_draws:,} times and compared with those observed."
    )
    lines = items(text(f"{check.words_of(panel)}.") for panel in check.panels)
    end = (
        "A panel differs beyond chance, as happens to one right model in a thousand: the model lacks something."
        if check.is_suspect
        else "Nothing differs beyond chance."
    )
    notes = "".join(paragraph(note, "soft") for note in check.notes)
    drawn = pictures.predictive and picture(
        pictures.predictive,
        "Observed outcomes against intervals of drawn ones; the list above has the counts.",
        f"Bars: {100 * check.interval:g} % of the drawn values. Points: observed; diamonds are outside their bar.",
    )
    return _section("Predictive check", paragraph(said) + lines + paragraph(end) + (drawn or "") + notes)


def audited(pictures: Pictures) -> str:
    """What an audit of the decisions showed; nothing without one."""
    if pictures.audit is None:
        return ""
    words = "How often decisions were accepted, against their exact log ratio."
    caption = f"{words} The line, if there is one, is what the same test does on all rows."
    return _section("Audit of the decisions", picture(pictures.audit, words, caption))


def cost(facts: Facts, pictures: Pictures) -> str:
    """Rows read against all rows, and time by stage."""
    reading, num_rows = facts.reading, max(facts.num_rows, 1)
    full = reading.decisions * num_rows
    mean = number(reading.per_decision, 0 if reading.per_decision >= 100 else 1)
    said = (
        f"A decision read {mean} of {facts.num_rows:,} rows on average, {share(reading.per_decision / num_rows)} of "
        f"them. {reading.decisions:,} decisions read {reading.total:,} rows; deciding by all rows would have read "
        f"{full:,}."
    )
    drawn = pictures.rows and picture(
        pictures.rows,
        "How many decisions read how many rows.",
        "Rows read for one decision; the dashed line: all rows.",
    )
    return _section("Cost", paragraph(said) + _stages(facts) + (drawn or ""))


def _stages(facts: Facts) -> str:
    total = sum(stage.seconds for stage in facts.stages)
    if not total:
        return ""
    colours = [SERIES[at % len(SERIES)] for at in range(len(facts.stages))]
    pairs = list(zip(facts.stages, colours, strict=True))
    widths = [f'<span style="flex-grow:{stage.seconds / total:.4f};background:{of}"></span>' for stage, of in pairs]
    bar = tag("div", "".join(widths), class_="bar", role="img", aria_label="Time by stage; the table has the numbers")
    lines = [
        [
            f'<span class="swatch" style="background:{colour}"></span>{text(stage.name)}',
            f"<td>{seconds(stage.seconds)}</td>",
            f"<td>{share(stage.seconds / total)}</td>",
            f"<td>{stage.rows:,}</td>" if stage.rows else "<td></td>",
        ]
        for stage, colour in pairs
    ]
    lines.append(["all", f"<td>{seconds(total)}</td>", "<td></td>", "<td></td>"])
    return bar + table(("stage", "time", "share", "rows read or swept"), lines)


def choices(facts: Facts) -> str:
    """What was chosen, and why."""
    if not facts.findings:
        return ""
    matches = [(line, _FINDING.match(line)) for line in facts.findings]
    pairs = [(match[1], match[2]) if match else ("", line) for line, match in matches]
    pairs += [("test", facts.trust.test), ("proposal", facts.trust.proposal)]
    return _section("What was chosen, and why", definitions(pairs))


def repeating(facts: Facts) -> str:
    """What is needed to do it again."""
    found = [("made", facts.made), ("seed", facts.seed), ("data", facts.checksum)]
    pairs = [(name, value) for name, value in found if value is not None]
    pairs += list(facts.versions.items())
    call = tag("pre", text(facts.call)) if facts.call else ""
    return _section("To do it again", call + definitions(pairs)) if call or pairs else ""


def citing(facts: Facts) -> str:
    """What to cite."""
    if not facts.citations:
        return ""
    return _section("To cite the methods", items((text(each) for each in facts.citations), class_="cite"))


def _section(title: str, inner: str) -> str:
    return tag("section", f"<h2>{text(title)}</h2>{inner}")
