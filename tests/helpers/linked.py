"""Hand-made records with relations and events."""

from __future__ import annotations

from ubert.schema.record import Argument, Category, Event, Record, Source, Span, Task

TEXT = "Ada of New York met Bob Ray of York, and Bob knows Ada."
EVENTS = "Ada hit Bob, Bob hit Ada, and the trial of Ada for the hit of Bob began."
PERSON, PLACE = Category("person", "entity"), Category("place", "entity")
LIVES = Category("lives in", "relation", head="person", tail="place")
KNOWS = Category("knows", "relation")
ATTACK, TRIAL = Category("attack", "event"), Category("trial", "event")
ROLES = (
    Category("attacker", "role", event="attack"),
    Category("target", "role", event="attack"),
    Category("defendant", "role", event="trial"),
)


def record(task: Task, text: str, categories: tuple[Category, ...] = (), **said: object) -> Record:
    return Record("r", "c", "train", "en", task, "a task", text, Source("f", 1, ""), None, categories, **said)  # type: ignore[arg-type]


def span(text: str, words: str, category: int | None = None, nth: int = 0, group: int | None = None) -> Span:
    start = -1
    for _ in range(nth + 1):
        start = text.index(words, start + 1)
    return Span(start, start + len(words), category, group=group)


def attacks() -> Record:
    """Two attacks by the same word, and a trial whose defendant is a person and an attack."""
    spans = [
        span(EVENTS, "hit", 0),
        span(EVENTS, "hit", 0, 1),
        span(EVENTS, "trial", 1),
        span(EVENTS, "Ada"),
        span(EVENTS, "Bob"),
        span(EVENTS, "Bob", None, 1),
        span(EVENTS, "Ada", None, 1),
    ]
    events = [
        Event(0, 0, [Argument(2, span=3), Argument(3, span=4)]),
        Event(0, 1, [Argument(2, span=5), Argument(3, span=6)]),
        Event(1, 2, [Argument(4, span=6), Argument(4, event=0)]),
    ]
    return record("event", EVENTS, (ATTACK, TRIAL, *ROLES), spans=spans, events=events)
