"""Abstracts with the XML annotations of the GENIA event corpus (Kim et al. 2008):

    <sentence id="S1">...of <term id="T1" sem="Protein_molecule">IL-10</term> production.</sentence>
    <event id="E1"><type class="Gene_expression"/><theme idref="T1"/>
    <clue>...of IL-10 <clueType>production</clueType>.</clue></event>

A row is {"text", "standoff"}. The text has a line for each sentence. The standoff has the form of
`pipelines/sources/annotation_formats/brat.py`:

- Spans have the name of their `element`. They are terms with the label `sem` ("" if there is none), coordinated
  terms that share words (`cons`) and their parts (`frag`), triggers, and the `clueLoc`, `clueTime` and
  `clueExperiment` of events. A trigger is the `clueType` of an event, in the copy of the sentence before it. Its
  label is the event's class ("" if there is none).
- The arguments of an event are what its `theme`, `cause` and `site` refer to (each part of a theme in parts), and
  its `clueLoc`, `clueTime` and `clueExperiment`. An event without a `clueType` has no trigger.
- Attributes are the `assertion` and `uncertainty` of events.

Marks of words that link or corefer (`linkTheme`, `corefCause`, ...) and comments are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.sources import Example, FormatOptions, RawRow, Slice
from pipelines.sources.parsing.xml import Element, flat, root
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

_ROLES = ("theme", "cause", "site")
_CIRCUMSTANCES = ("clueLoc", "clueTime", "clueExperiment")
_ATTRIBUTES = ("assertion", "uncertainty")


class Options(FormatOptions):
    """GENIA's XML needs no options."""


EXAMPLE = Example(
    {
        "1.xml": '<Annotation><sentence id="S1"><term id="T1" sem="Protein">IL-10</term> production.</sentence>\n'
        '<event id="E1"><type class="Gene_expression"/><theme idref="T1"/>\n'
        "<clue>IL-10 <clueType>production</clueType>.</clue></event></Annotation>\n"
    }
)


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield one row, the abstract."""
    try:
        yield RawRow(1, piece.path, _content(root(piece)))
    except (UserError, _BadAnnotationError) as error:
        reason = "not XML" if isinstance(error, UserError) else "bad annotation"
        yield Reject(piece.path, 1, reason, str(error), piece.read_bytes().decode("utf-8", "backslashreplace"))


class _BadAnnotationError(Exception):
    """An annotation that cannot be read, and the reason."""


Standoff = dict[str, list[dict[str, Any]]]
Fragments = list[list[int]]


def _content(document: Element) -> dict[str, Any]:
    standoff: Standoff = {"spans": [], "events": [], "attributes": []}
    sentences: list[str] = []
    start = after = 0  # offsets in the text of the last sentence, and of the next one
    for _, _, element in flat(document)[1]:
        if element.name == "sentence":
            sentence, inner = flat(element)
            sentences.append(sentence)
            start, after = after, after + len(sentence) + 1
            for begin, end, term in inner:
                if term.name in ("term", "cons", "frag"):
                    label = term.attributes.get("sem", "") if term.name == "term" else term.name
                    span = _span(_id(term), label, [[begin, end]], sentence, start)
                    standoff["spans"].append({**span, "element": term.name})
        elif element.name == "event":
            _event(element, sentences[-1] if sentences else "", start, standoff)
    known: dict[str, dict[str, Any]] = {}
    for span in standoff["spans"]:  # events may share a mention
        if known.setdefault(span["id"], span) != span:
            raise _BadAnnotationError(f"two mentions have the same id {span['id']}")
    standoff["spans"] = list(known.values())
    return {"text": "\n".join(sentences), "standoff": standoff}


def _event(event: Element, sentence: str, start: int, standoff: Standoff) -> None:
    """Add an event, its attributes, and the mentions in its clue, which is a copy of the sentence at `start`."""
    name = _id(event)
    kinds, clues = event.children("type"), [flat(clue) for clue in event.children("clue")]
    if len(kinds) != 1 or len(clues) != 1 or clues[0][0] != sentence:
        raise _BadAnnotationError(f"event {name}: expected one type, and one clue that is the sentence before it")
    label, inner = kinds[0].attributes.get("class", ""), clues[0][1]

    def mention(element: str, kind: str, fragments: Fragments) -> str:
        place = ",".join(f"{start + begin}-{start + end}" for begin, end in fragments)
        span = _span(f"{element} {kind} {place}", kind, fragments, sentence, start)
        standoff["spans"].append({**span, "element": element})
        return str(span["id"])

    trigger = [[begin, end] for begin, end, mark in inner if mark.name == "clueType"]
    arguments = [
        {"role": part.name, "target": target}
        for part in event.children(*_ROLES)
        for key, target in sorted(part.attributes.items())
        if key.startswith("idref")
    ]
    for begin, end, mark in inner:
        if mark.name in _CIRCUMSTANCES:
            arguments.append({"role": mark.name, "target": mention(mark.name, mark.name, [[begin, end]])})
    at = mention("clueType", label, trigger) if trigger else None
    standoff["events"].append({"id": name, "label": label, "trigger": at, "arguments": arguments})
    for key in _ATTRIBUTES:
        if key in event.attributes:
            given = {"id": f"{name} {key}", "label": key, "target": name, "value": event.attributes[key]}
            standoff["attributes"].append(given)


def _span(name: str, label: str, fragments: Fragments, sentence: str, start: int) -> dict[str, Any]:
    words = " ".join(sentence[begin:end] for begin, end in fragments)
    moved = [[start + begin, start + end] for begin, end in fragments]
    return {"id": name, "label": label, "fragments": moved, "text": words}


def _id(element: Element) -> str:
    name = element.attributes.get("id")
    if not name:
        raise _BadAnnotationError(f"<{element.name}> without an id")
    return name
