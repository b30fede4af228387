"""Prepare the facts about a record that are listed below its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pipelines.report.visible import shortened
from ubert.schema.checks import covered
from ubert.schema.record import Event, Record, sampling_key

WORDS = 160  # limit of one item in characters


class Most(NamedTuple):
    """How much of a record is shown: characters of a text, and items of a list."""

    characters: int = 1200
    items: int = 12


FEW, ALL = Most(), Most(200_000, 5_000)


class Part(NamedTuple):
    """Words of a fact. A role is `words`, `category` or `chosen`.

    `anchor` is the id in the page of the mention or event that the words name.
    """

    role: str
    words: str
    anchor: str = ""


@dataclass(frozen=True)
class Fact:
    """A fact about a record, which is listed below its text.

    An event has an `anchor` of its own and a (role, filler) for each argument. Other facts have only `parts`.
    """

    name: str
    parts: list[Part]
    anchor: str = ""
    arguments: list[tuple[Part, Part]] = field(default_factory=list)

    @property
    def line(self) -> list[Part]:
        """Return all parts in one line."""
        return self.parts + [part for argument in self.arguments for part in argument]


def facts(record: Record, most: Most) -> Iterator[Fact]:
    """Yield the facts about a record, at most `most.items` of a kind."""
    yield from _answers(record, most)
    if record.value is not None:
        yield Fact("value", [Part("chosen", f"{record.value:g}")])
    if record.target is not None:
        yield Fact("target", [Part("words", shortened(record.target, most.characters))])
    for relation in record.relations[: most.items]:
        category = Part("category", name(record, relation.category))
        yield Fact("relation", [_words(record, relation.head), category, _words(record, relation.tail)])
    yield from (_event(record, i, event) for i, event in enumerate(record.events[: most.items]))
    left = max(0, len(record.relations) - most.items) + max(0, len(record.events) - most.items)
    if left:
        yield Fact("", [Part("words", f"and {left:,} more")])


def _answers(record: Record, most: Most) -> Iterator[Fact]:
    match record.task:
        case "qa":
            yield from (
                Fact("question", [Part("category", shortened(c.name, most.characters))]) for c in record.categories
            )
            answers = [
                Part("chosen", shortened(covered(record, span), WORDS)) for span in record.spans[: most.items]
            ]
            yield Fact("answer", answers or [Part("words", "none in the text")])
        case "choice":
            for i, option in enumerate(record.categories[: most.items]):
                role = "chosen" if i in record.labels else "words"
                yield Fact(f"option {i + 1}", [Part(role, shortened(option.name, WORDS))])
        case "classification" | "multilabel" | "pair":
            others = [i for i in range(len(record.categories)) if i not in record.labels]
            few = others if len(others) <= most.items else []
            parts = [Part("chosen", name(record, i)) for i in record.labels] or [Part("words", "none")]
            parts += [Part("words", name(record, i)) for i in few]
            yield Fact("label", parts if few else [*parts, Part("words", f"of {len(record.categories):,}")])


def _event(record: Record, index: int, event: Event) -> Fact:
    parts = [Part("category", name(record, event.category))]
    if event.trigger is not None:
        parts.append(_words(record, event.trigger))
    arguments = [
        (
            Part("category", name(record, argument.role)),
            Part("words", f"event {argument.event}", anchor(record, f"event-{argument.event}"))
            if argument.span is None
            else _words(record, argument.span),
        )
        for argument in event.arguments
    ]
    return Fact(f"event {index}", parts, anchor(record, f"event-{index}"), arguments)


def _words(record: Record, span: int) -> Part:
    return Part("words", shortened(covered(record, record.spans[span]), WORDS), anchor(record, span))


def name(record: Record, category: int) -> str:
    return shortened(record.categories[category].name, WORDS)


def anchor(record: Record, span: int | str) -> str:
    """Return the id in the page of a mention or an event."""
    return f"{sampling_key(record.record_id):x}-{span}"
