"""Parse XML files safely: entity declarations, external references and deep nesting are errors."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from pipelines.sources import Slice
from pipelines.sources.parsing.text import text
from ubert.schema.errors import UserError

DEEPEST = 100  # limit of nested elements


class Element(NamedTuple):
    """An element: its name without a namespace, its attributes, and its content, text and elements in order."""

    name: str
    attributes: dict[str, str]
    parts: list[str | Element]

    def children(self, *names: str) -> list[Element]:
        """Return the child elements, or those with one of `names`."""
        inner = [part for part in self.parts if isinstance(part, Element)]
        return [child for child in inner if child.name in names] if names else inner


def root(piece: Slice) -> Element:
    """Parse a file and return its root element. The spec's encoding overrides the one that the file declares.

    Raises:
        UserError: the file has another encoding, is not XML (the message has line and column), declares entities,
            or is nested too deeply.
    """
    builder, file = _Builder(), piece.place
    parser = DefusedXMLParser(target=builder)
    try:
        parser.feed(text(piece))
        parser.close()
    except ParseError as error:
        line, column = error.position
        raise UserError(f"{file}: line {line}, column {column + 1}: not valid XML: {error}") from None
    except DefusedXmlException:
        line = parser.parser.CurrentLineNumber
        raise UserError(f"{file}: line {line}: declares an entity; replace entities by their text") from None
    except _TooDeepError:
        line = parser.parser.CurrentLineNumber
        raise UserError(f"{file}: line {line}: more than {DEEPEST} nested elements") from None
    return builder.open[0].children()[0]


def flat(element: Element) -> tuple[str, list[tuple[int, int, Element]]]:
    """Return the text of an element without tags, and the offsets [start, end) of each inner element, outer ones
    first."""
    pieces: list[str] = []
    found: list[tuple[int, int, Element]] = []

    def walk(outer: Element, at: int) -> int:
        for part in outer.parts:
            if isinstance(part, str):
                pieces.append(part)
                at += len(part)
            else:
                place, start = len(found), at
                found.append((start, start, part))
                at = walk(part, at)
                found[place] = (start, at, part)
        return at

    walk(element, 0)
    return "".join(pieces), found


class _TooDeepError(Exception):
    """Elements are nested too deeply."""


class _Builder:
    """Builds elements from the parser's events. `open` is the stack of open elements, below a nameless one."""

    def __init__(self) -> None:
        self.open = [Element("", {}, [])]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.open) > DEEPEST:
            raise _TooDeepError
        keys = sorted(attributes, key=lambda key: key[0] != "{")  # a later key replaces one of the same name
        element = Element(_local(name), {_local(key): attributes[key] for key in keys}, [])
        self.open[-1].parts.append(element)
        self.open.append(element)

    def data(self, data: str) -> None:
        self.open[-1].parts.append(data)

    def end(self, name: str) -> None:
        self.open.pop()


def _local(name: str) -> str:
    return name.rpartition("}")[2]
