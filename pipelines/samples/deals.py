"""sample_deals: acquisitions, hirings and investments, with their relations and events, as brat standoff."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pipelines.samples.grammar import TRIGGER, compile_rules, read
from pipelines.samples.scene import Scene, Text
from pipelines.samples.world import makers
from ubert.schema.record import Split

ENTITIES = {
    "person": "Person", "firm": "Organization", "place": "Place", "role": "Role", "money": "Money", "day": "Date",
    "month": "Date", "year": "Date",
}  # fmt: skip
# The roles of an event -> slots of its templates. A sentence has at most one of a role's slots.
_ACQUISITION = {"Buyer": ("firm1",), "Target": ("firm2",), "Price": ("money1",), "Time": ("day1", "month1")}
_HIRING = {"Employer": ("firm1",), "Employee": ("person1",), "Role": ("role1",), "Time": ("day1", "month1")}
_INVESTMENT = {
    "Investor": ("firm1", "person1"), "Recipient": ("firm2",), "Amount": ("money1",), "Time": ("day1", "month1"),
}  # fmt: skip
EVENTS = {
    "Bought": ("Acquisition", _ACQUISITION), "Agreed": ("Acquisition", _ACQUISITION),
    "Hired": ("Hiring", _HIRING), "Invested": ("Investment", _INVESTMENT),
}  # fmt: skip
RELATIONS = {
    "Bought": ("owns", "firm1", "firm2"), "Owns": ("owns", "firm1", "firm2"),
    "Hired": ("works_for", "person1", "firm1"), "Works": ("works_for", "person1", "firm1"),
    "Based": ("located_in", "firm1", "place1"),
}  # fmt: skip
_OPENINGS = ("Bought", "Agreed", "Hired", "Hired", "Invested", "Invested")
# Sentences that may follow: a rule, its slot for a firm of the opening, and that firm's slot in the opening. All
# other names are new.
_SEQUELS = (
    ("Based", "firm1", "firm1"), ("Based", "firm1", "firm2"),
    ("Works", "firm1", "firm1"), ("Works", "firm1", "firm2"),
    ("Owns", "firm1", "firm1"), ("Owns", "firm1", "firm2"),
    ("Hired", "firm1", "firm2"), ("Invested", "firm2", "firm1"),
    ("Filler", "firm1", "firm1"), ("Filler", "firm1", "firm2"),
)  # fmt: skip


class Document(NamedTuple):
    """A text and its brat annotations."""

    text: str
    annotations: str


def writer(split: Split) -> Callable[[Scene], Document]:
    """Return a function that writes one document of two to five sentences."""
    grammar = compile_rules(read("deals"), makers(split), split)
    aliases = [_alias(i, inner, outer) for i, (_, inner, outer) in enumerate(_SEQUELS, start=1)]

    def write(scene: Scene) -> Document:
        rule = scene.pick(_OPENINGS)
        sentences = [(rule, scene.write(grammar[rule]))]
        left = list(range(len(_SEQUELS)))
        for _ in range(1 + scene.draw(4)):
            i = left.pop(scene.draw(len(left)))
            rule, scene.alias = _SEQUELS[i][0], aliases[i]
            sentences.append((rule, scene.write(grammar[rule])))
        return annotate(sentences)

    return write


def _alias(step: int, inner: str, outer: str) -> dict[str, str]:
    """Return new slots for the names of a sequel, except for the one that is a firm of the opening."""
    alias = {f"{kind}{i}": f"{kind}{10 * step + i}" for kind in ENTITIES for i in range(1, 5)}
    return {**alias, inner: outer}


def annotate(sentences: list[tuple[str, Text]]) -> Document:
    """Join (rule, text) pairs to a document. Each name is a T, and each trigger is a T of its event's type."""
    entities: list[str] = []
    relations: list[str] = []
    events: list[str] = []
    at = 0
    for rule, (text, marks) in sentences:
        event, roles = EVENTS.get(rule, ("", {}))
        ids: dict[str, str] = {}
        for slot, start, end in marks:
            kind = event if slot == TRIGGER else ENTITIES.get(slot.rstrip("0123456789"))
            if kind is not None:
                ids[slot] = f"T{len(entities) + 1}"
                entities.append(f"{ids[slot]}\t{kind} {at + start} {at + end}\t{text[start:end]}")
        if rule in RELATIONS:
            name, head, tail = RELATIONS[rule]
            if head in ids and tail in ids:
                relations.append(f"R{len(relations) + 1}\t{name} Arg1:{ids[head]} Arg2:{ids[tail]}")
        if event:
            filled = [f" {role}:{ids[slot]}" for role, slots in roles.items() for slot in slots if slot in ids]
            events.append(f"E{len(events) + 1}\t{event}:{ids[TRIGGER]}{''.join(filled)}")
        at += len(text) + 1
    lines = [*entities, *relations, *events]
    return Document(" ".join(text.text for _, text in sentences) + "\n", "".join(f"{line}\n" for line in lines))
