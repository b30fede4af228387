"""Show a record as coloured text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from rich.text import Text

from pipelines.report.visible import visible
from pipelines.sources.places import record_place
from ubert.schema.checks import covered
from ubert.schema.record import Record

COLOURS = (
    "black on cyan",
    "black on yellow",
    "black on green",
    "white on magenta",
    "white on blue",
    "white on red",
)


def described(record: Record) -> Text:
    """Return a record with its spans marked in the text and listed below it."""
    lines = fields(
        record=record.record_id,
        source=record_place(record),
        task=f"{record.task}: {record.instruction}",
        categories=few([category.name for category in record.categories]),
    )
    lines.append(f"{'text':12} ", "bold").append(_marked(record, "text"))
    if record.pair is not None:
        lines.append(f"\n{'pair':12} ", "bold").append(_marked(record, "pair"))
    for label in record.labels:
        lines.append(f"\n{'label':12} ", "bold").append(visible(record.categories[label].name))
    if record.value is not None:
        lines.append(f"\n{'value':12} ", "bold").append(f"{record.value:g}")
    if record.target is not None:
        lines.append(f"\n{'target':12} ", "bold").append(visible(record.target))
    for i, span in enumerate(record.spans):
        category = "" if span.category is None else record.categories[span.category].name
        lines.append(f"\n{f'span {i}':12} ", "bold")
        marked = f"[{span.start}, {span.end}) {visible(category)}: {covered(record, span)!r}"
        lines.append(marked, colour(span.category))
        if span.kb_id is not None:
            lines.append(f" {visible(span.kb_id)}")
    for group, mentions in _clusters(record).items():
        lines.append(f"\n{f'cluster {group}':12} ", "bold").append(", ".join(mentions))
    for relation in record.relations:
        first, second = (covered(record, record.spans[i]) for i in (relation.head, relation.tail))
        lines.append(f"\n{'relation':12} ", "bold")
        lines.append(f"{first!r} -- {visible(record.categories[relation.category].name)} --> {second!r}")
    for event in record.events:
        trigger = "" if event.trigger is None else repr(covered(record, record.spans[event.trigger]))
        lines.append(f"\n{'event':12} ", "bold")
        lines.append(f"{visible(record.categories[event.category].name)} {trigger}")
        for argument in event.arguments:
            filler = f"event {argument.event}" if argument.span is None else f"span {argument.span}"
            lines.append(f"\n{'':12} {visible(record.categories[argument.role].name)}: {filler}")
    return lines.append("\n")


def fields(**values: str) -> Text:
    """Return a line for each name and value."""
    lines = Text()
    for name, value in values.items():
        lines.append(f"{name:12} ", "bold").append(f"{visible(value)}\n")
    return lines


def _clusters(record: Record) -> dict[int, list[str]]:
    """Return the words of the mentions of each cluster, or of the fragments of each discontinuous mention."""
    found: dict[int, list[str]] = {}
    for span in record.spans:
        if span.group is not None:
            found.setdefault(span.group, []).append(repr(covered(record, span)))
    return found


def _marked(record: Record, side: str) -> Text:
    given = record.text if side == "text" else record.pair or ""
    text = Text(visible(given))
    shown = [0, *accumulate(len(visible(character)) for character in given)]  # where each character is shown
    for span in record.spans:
        if span.side == side:
            text.stylize(colour(span.category), shown[span.start], shown[span.end])
    return text


def colour(category: int | None) -> str:
    return "underline" if category is None else COLOURS[category % len(COLOURS)]


def few(names: Sequence[str], most: int = 12) -> str:
    """Join the first `most` names, and add the number of further ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
