"""Events in two passes (UBERT, section 3.1): first the triggers, with one table per event type; then the
arguments of each trigger, with one table per role of its type.

The second question names the event type in its instruction, and the trigger's words in its second text. If
the words occur more than once, they are put in brackets with as much context as makes them unique: "the
[expression] of IL-4". If the longest context isn't unique either, the number of its occurrence follows. In a
long text, only the window around the trigger is read. Events with the same type and trigger share one question,
and are decoded as one event with the arguments of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ubert.model.tokenizer import Encoding, TokenSpans, align
from ubert.objectives import (
    Categories,
    EventPrediction,
    Link,
    Lost,
    Objective,
    Overlaps,
    Prediction,
    Query,
    Scored,
    SecondPass,
    SpanPrediction,
    Targets,
)
from ubert.objectives.common import Gold, choose, in_order, part, spans, tokens_of
from ubert.schema.checks import filler
from ubert.schema.record import Event, Record

NO_EVENT = "no event with a trigger has it"
CONTEXT = (0, 1, 2, 4, 8, 16)  # tokens of context on each side of a trigger, tried in order


def tables(categories: Categories) -> Categories:
    """Return the event types."""
    return tuple(category for category in categories if category.kind == "event")


def targets(record: Record, encoding: Encoding) -> Targets:
    """Return the triggers' cells."""
    gold, found = Gold(), tokens_of(record, encoding)
    table = {category: i for i, category in enumerate(tables(record.categories))}
    events = [(event, event.trigger) for event in record.events if event.trigger is not None]
    for event, trigger in events:
        first, last = int(found.first[trigger]), int(found.last[trigger])
        if first <= last:
            gold.mention((table[record.categories[event.category]], first, last), trigger, int(found.fit[trigger]))
        else:
            gold.lost.append(Lost("no token", trigger))
    used = {i for event, trigger in events for i in (trigger, *(filler(record, a) for a in event.arguments))}
    gold.lost += [Lost(NO_EVENT, i) for i in range(len(record.spans)) if i not in used]
    return gold.targets()


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction]:
    """Return triggers, or arguments, in text order.

    `overlap` applies only within a category. Mentions of different categories may overlap: a word may be the
    trigger of two events, and a mention an argument in two roles.
    """
    found: list[SpanPrediction] = []
    for table in range(len(query.categories)):
        cells = part(scored.cells, [table])
        chosen = choose(query, encoding, cells, threshold=threshold, overlap=overlap)
        found += spans(query, encoding, cells, chosen)
    return in_order(found)


def argument_targets(record: Record, encoding: Encoding) -> list[tuple[Query, Targets]]:
    """Return the cells of the arguments of each trigger that has a token and whose type has roles."""
    query = OBJECTIVE.query(record.task, record.instruction, record.text, record.pair, record.categories)
    found = tokens_of(record, encoding)
    events: dict[tuple[str, int, int], list[Event]] = {}
    for event in record.events:
        if event.trigger is not None and found.first[event.trigger] <= found.last[event.trigger]:
            place = int(found.first[event.trigger]), int(found.last[event.trigger])
            events.setdefault((record.categories[event.category].name, *place), []).append(event)
    return [
        (_question(query, encoding, name, first, last), _arguments(record, found, same))
        for (name, first, last), same in events.items()
        if _roles(query.given, name)
    ]


def ask(query: Query, encoding: Encoding, found: Sequence[Prediction]) -> list[Query]:
    """Return one question for each trigger whose event type has roles."""
    triggers = [trigger for trigger in found if isinstance(trigger, SpanPrediction)]
    places = align(encoding, [trigger.start for trigger in triggers], [trigger.end for trigger in triggers])
    return [
        _question(query, encoding, trigger.category, int(first), int(last))
        for trigger, first, last in zip(triggers, places.first, places.last, strict=True)
        if _roles(query.given, trigger.category)
    ]


def join(query: Query, found: Sequence[Prediction], answers: Sequence[Sequence[Prediction]]) -> list[Prediction]:
    """Combine each trigger with its arguments to an event."""
    given = iter(answers)
    return [
        EventPrediction(
            trigger.category,
            trigger,
            tuple(
                argument
                for argument in (next(given) if _roles(query.given, trigger.category) else ())
                if isinstance(argument, SpanPrediction)
            ),
        )
        for trigger in found
        if isinstance(trigger, SpanPrediction)
    ]


def _question(query: Query, encoding: Encoding, event: str, first: int, last: int) -> Query:
    return Query(
        query.task,
        f"{query.instruction}: {event}",
        query.text,
        _in_context(query.text, encoding, first, last),
        _roles(query.given, event),
        around=(first, last),
    )


def _roles(categories: Categories, event: str) -> Categories:
    return tuple(category for category in categories if category.kind == "role" and category.event == event)


def _in_context(text: str, encoding: Encoding, first: int, last: int) -> str:
    """Return the words of these tokens with enough context to be unique, or with the number of the occurrence."""
    start, end = int(encoding.starts[first]), int(encoding.ends[last])
    for more in CONTEXT:
        left = int(encoding.starts[max(0, first - more)])
        right = int(encoding.ends[min(len(encoding.ids) - 1, last + more)])
        if text.find(text[left:right]) == text.rfind(text[left:right]):
            number = ""
            break
    else:
        number = f" ({sum(text.startswith(text[left:right], place) for place in range(left + 1))})"
    alone = (left, right) == (start, end)
    return text[left:right] if alone else f"{text[left:start]}[{text[start:end]}]{text[end:right]}{number}"


def _arguments(record: Record, found: TokenSpans, events: Sequence[Event]) -> Targets:
    """Return the cells of the arguments of events with the same trigger."""
    gold = Gold()
    name = record.categories[events[0].category].name
    table = {role: i for i, role in enumerate(_roles(record.categories, name))}
    for event in events:
        for argument in event.arguments:
            trigger, span = event.trigger or 0, filler(record, argument)
            if span is None:
                gold.links.append(Link(trigger, trigger, []))
                continue
            cells = []
            if found.first[span] <= found.last[span]:
                cell = (table[record.categories[argument.role]], int(found.first[span]), int(found.last[span]))
                cells = [(gold.mention(cell, span, int(found.fit[span])),) * 2]
            else:
                gold.lost.append(Lost("no token", span))
            gold.links.append(Link(trigger, span, cells))
    return gold.targets()


OBJECTIVE = Objective(
    kind="event",
    targets=targets,
    decode=decode,
    tables=tables,
    second=SecondPass(argument_targets, ask, decode, join),
)
