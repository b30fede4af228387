"""Locates mentions: converts what a row gives for each mention to fragments [start, end) of its text, or
to a reason why that fails."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from pipelines.mapping.annotations.occurrences import anywhere, occurrences
from pipelines.mapping.annotations.units import (
    NAMES,
    Fragments,
    character,
    characters,
    is_inside,
    size,
    starts,
)
from pipelines.mapping.body import Body
from pipelines.mapping.fields import Field, Value, as_label, is_words, whole_field
from pipelines.mapping.paths import Scope, value
from pipelines.mapping.refused import RefusedError, short
from ubert.schema.record import Mismatch
from ubert.schema.specs.mapping import Mention, Offsets


class Given(Struct, frozen=True, gc=False):
    """A mention as its row gives it.

    If the label is None, the mention is merged with the labelled one at the same place, if there is one.

    Attributes:
        kind: its role in the row, such as mention, trigger or argument.
        number: its index in the row, from 0.
        id: its id in the source.
        fragments: [start, end) in the unit of the offsets, in the whole text, if both are given.
        start: its start, if only that is given.
        words: its text, if given.
        kb_id: its id in a knowledge base.
    """

    kind: str
    number: int
    id: str | None
    label: str | None
    fragments: Fragments | None
    start: int | None
    words: str | None
    kb_id: str | None = None

    @property
    def name(self) -> str:
        """Return its id, or its number if it has none."""
        return self.id or str(self.number)


def given_field(
    mention: Mention, offsets: Offsets
) -> Callable[[Scope, Body, str, int, str | None, str | None], Given]:
    """Return a function that reads a mention from a scope, given the text and the mention's kind, number,
    id and label."""
    words = _if_given(mention.words, _words_field)
    start = _if_given(mention.start, lambda path: _start_field(path, offsets.absent_start))
    end, sentence = _if_given(mention.end, whole_field), _if_given(mention.sentence, whole_field)
    fragments, indices = _if_given(mention.fragments, _pairs_field), _if_given(mention.indices, _runs_field)
    linked = _if_given(mention.kb_id, _kb_id_field)
    beyond = 1 if offsets.end == "inclusive" else 0

    def given(scope: Scope, body: Body, kind: str, number: int, identity: str | None, label: str | None) -> Given:
        quoted = words(scope) if words else None
        kb_id = linked(scope) if linked else None
        if indices:
            found: Fragments | None = indices(scope)
        elif fragments:
            found = fragments(scope)
            if beyond:
                found = tuple((s, e + beyond) for s, e in found)
        elif start is None:
            return Given(kind, number, identity, label, None, None, quoted, kb_id)
        elif end is None:
            base = _first_token(body, sentence(scope)) if sentence else 0
            return Given(kind, number, identity, label, None, base + start(scope), quoted, kb_id)
        else:
            found = ((start(scope), end(scope) + beyond),)
        if sentence and found:
            base = _first_token(body, sentence(scope))
            found = tuple((base + s, base + e) for s, e in found)
        return Given(kind, number, identity, label, found, None, quoted, kb_id)

    return given


def _if_given(path: str | None, field: Callable[[str], Field[Value]]) -> Field[Value] | None:
    return None if path is None else field(path)


def _words_field(path: str) -> Field[str]:
    """Return a function that gets the words of a mention; a list of words is joined by spaces."""
    get = value(path)

    def words(scope: Scope) -> str:
        found = get(scope)
        if isinstance(found, str):
            return found
        if not is_words(found):
            raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected a string")
        return " ".join(found)

    return words


def _kb_id_field(path: str) -> Field[str | None]:
    """Return a function that gets an id in a knowledge base, or None if there is none. Several ids are
    joined by `|`, as in PubTator."""
    get = value(path)

    def kb_id(scope: Scope) -> str | None:
        found = get(scope)
        several = found if isinstance(found, list) else [] if found is None else [found]
        return "|".join(map(as_label, several)) or None

    return kb_id


def _start_field(path: str, absent: int | None) -> Field[int]:
    whole, get = whole_field(path), value(path)
    if absent is None:
        return whole

    def number(scope: Scope) -> int:
        try:
            get(scope)
        except RefusedError:
            return absent
        return whole(scope)

    return number


def _pairs_field(path: str) -> Field[Fragments]:
    get = value(path)

    def pairs(scope: Scope) -> Fragments:
        found = get(scope)
        several = [found] if _is_pair(found) else found
        if not isinstance(several, list) or not several or not all(map(_is_pair, several)):
            raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected pairs of offsets")
        return tuple(map(tuple, several))

    return pairs


def _is_pair(given: Any) -> bool:
    return isinstance(given, list) and len(given) == 2 and type(given[0]) is type(given[1]) is int


def _runs_field(path: str) -> Field[Fragments]:
    """Return a function that converts a list of token indices to runs of successive tokens. Indices are
    always inclusive, whatever the spec's `offsets.end`."""
    get = value(path)

    def runs(scope: Scope) -> Fragments:
        found = get(scope)
        if not isinstance(found, list) or not found or not all(type(i) is int for i in found):
            raise RefusedError("wrong type", f"{path!r} is {short(found)}, expected a list of token numbers")
        if any(a >= b for a, b in pairwise(found)):
            raise RefusedError("span outside its text", f"{path!r} is {short(found)}, expected rising numbers")
        breaks = [0, *(i for i in range(1, len(found)) if found[i] != found[i - 1] + 1), len(found)]
        return tuple((found[a], found[b - 1] + 1) for a, b in pairwise(breaks))

    return runs


def _first_token(body: Body, sentence: int) -> int:
    if not 0 <= sentence < len(body.sentences) - 1:
        detail = f"sentence {sentence} of {len(body.sentences) - 1}"
        raise RefusedError("span outside its text", detail)
    return body.sentences[sentence]


def locate(body: Body, mentions: Sequence[Given], offsets: Offsets) -> tuple[list[Fragments], list[Mismatch]]:
    """Locate each mention in the text.

    Returns:
        The fragments of each mention in characters, and the mentions that were not at their offsets.

    Raises:
        MisplacedError: a mention is not in the text, or its place is ambiguous.
        RefusedError: a mention without words is outside the text, or its place in the document is known, but not
            where the text begins in it.
    """
    units = starts(body.text, offsets.unit)
    shift = _shift(body, mentions, units) if offsets.base == "document" else 0
    places: list[Fragments] = []
    mismatches: list[Mismatch] = []
    lost: tuple[str, str] | None = None
    simple = offsets.unit != "token" and isinstance(units, range) and not shift
    for given in mentions:
        fragments = given.fragments
        if simple and fragments is not None and len(fragments) == 1:  # fast path for correct offsets
            [(first, end)] = fragments
            if 0 <= first < end and body.text[first:end] == given.words:
                places.append(fragments)
                continue
        fragments = _fragments(body, given, offsets, shift, units)
        there = None if fragments is None else _covered(body.text, fragments)
        if fragments is not None and there is not None and _agree(given.words, there, offsets):
            places.append(fragments)
            continue
        if given.words is None:
            raise RefusedError(*_outside(_name(given), body, given, offsets, shift))
        found = list(occurrences(body.text, given.words)) if given.words else []
        start = fragments[0][0] if fragments else given.start
        comparable = fragments is not None or simple  # else offsets are token numbers, or of another text
        place = _choose(found, start if comparable else None, offsets)
        if place is not None:
            places.append(((place, place + len(given.words)),))
        if _start(given) is not None or place is None or len(found) > 1:
            quoted, text_there = _writable(given.words), None if there is None else _writable(there)
            mismatches.append(Mismatch(given.kind, given.name, quoted, start, text_there, len(found), place))
        if place is None and lost is None:
            lost = _why(body, given, there, len(found), offsets, shift)
    if lost:
        reason, detail = lost
        more = sum(mismatch.found is None for mismatch in mismatches) - 1
        raise MisplacedError(reason, detail + (f"; {more} more like it" if more else ""), mismatches)
    return places, mismatches


def _writable(text: str) -> str:
    """Escape lone surrogates, which can't be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


class MisplacedError(RefusedError):
    """A row with mentions that are not at their offsets."""

    def __init__(self, reason: str, detail: str, mismatches: list[Mismatch]) -> None:
        super().__init__(reason, detail)
        self.mismatches = mismatches


def _shift(body: Body, mentions: Sequence[Given], units: Sequence[int]) -> int:
    """Return the difference between offsets into the document and offsets into this text. With this number,
    every mention that has offsets and words matches its words.

    Raises:
        RefusedError: a mention has offsets, but none has offsets and words.
    """
    located = [(start, given) for given in mentions if (start := _start(given)) is not None]
    known = [(start, given.words) for start, given in located if given.words]
    if not known:
        if located:
            detail = f"{_name(located[0][1])} at {_shown(located[0][1])}"
            raise RefusedError(
                "offsets into an unknown document", f"{detail}: no mention of the row has offsets and words"
            )
        return 0
    first, words = known[0]
    shifts = [first - units[place] for place in anywhere(body.text, words)]
    agreed = [
        shift
        for shift in shifts
        if all(
            (place := character(start - shift, units)) is not None and body.text.startswith(words, place)
            for start, words in known
        )
    ]
    return agreed[0] if len(agreed) == 1 else -1 << 62  # outside any text: `locate` searches for the words


def _start(given: Given) -> int | None:
    return given.fragments[0][0] if given.fragments else given.start


def _fragments(body: Body, given: Given, offsets: Offsets, shift: int, units: Sequence[int]) -> Fragments | None:
    """Convert a mention's offsets to characters. Return None if it has none, or if they are outside the text or
    inside a character. `units`: where each character begins in the unit of the offsets."""
    if given.fragments is None and given.start is None:
        return None
    start = given.start or 0
    pairs = given.fragments or ((start, _end(body, start, given.words or "", offsets)),)
    if offsets.unit == "token":
        inside = _within(pairs, len(body.starts))
        return tuple((body.starts[s], body.ends[e - 1]) for s, e in pairs) if inside else None
    moved = tuple((s - shift, e - shift) for s, e in pairs) if shift else pairs
    if not _within(moved, units[-1]):
        return None
    return moved if isinstance(units, range) else characters(moved, units)


def _end(body: Body, start: int, words: str, offsets: Offsets) -> int:
    """Return the end of words from their start. In tokens, the last token is the first one that ends no earlier
    than the words."""
    if offsets.unit == "token" and 0 <= start < len(body.starts):
        return bisect_left(body.ends, body.starts[start] + len(words)) + 1
    return start + size(words, offsets.unit)


def _within(pairs: Fragments, length: int) -> bool:
    for start, end in pairs:  # noqa: SIM110
        if not 0 <= start < end <= length:
            return False
    return True


def _covered(text: str, fragments: Fragments) -> str:
    if len(fragments) == 1:  # the common case
        start, end = fragments[0]
        return text[start:end]
    return " ".join([text[start:end] for start, end in fragments])


def _agree(words: str | None, there: str, offsets: Offsets) -> bool:
    if words is None or words == there:
        return True
    if offsets.compare == "folded":
        return "".join(words.split()).casefold() == "".join(there.split()).casefold()
    return words == there.replace("\r\n", " ").replace("\n", " ")


def _choose(found: list[int], start: int | None, offsets: Offsets) -> int | None:
    """Choose one of the places where the words occur, or None if the choice would be a guess."""
    if not found or offsets.locate == "reject":
        return None
    if len(found) == 1 or offsets.locate == "first":
        return found[0]
    if offsets.locate == "nearest" and start is not None:
        nearest = sorted(found, key=lambda place: abs(place - start))[:2]
        if abs(nearest[0] - start) < abs(nearest[1] - start):
            return nearest[0]
    return None


def _why(body: Body, given: Given, there: str | None, count: int, offsets: Offsets, shift: int) -> tuple[str, str]:
    claim = f"{_name(given)} says {short(given.words)}"
    if there is not None:
        return "mention doesn't match its offsets", f"{claim}, but the text at {_shown(given)} is {short(there)}"
    at = "" if _start(given) is None else f" at {_shown(given)} of {_size(body, offsets)}"
    if given.words and count == 0:
        return "mention isn't in the text", f"{claim}{at}, which the text does not contain"
    if at:
        return _outside(claim, body, given, offsets, shift)
    if count == 1:
        return "mention has no offsets", f"{claim} without offsets; `locate: unique` in the spec would find it"
    return "mention is in the text more than once", f"{claim}, which is in the text {count} times"


def _outside(claim: str, body: Body, given: Given, offsets: Offsets, shift: int) -> tuple[str, str]:
    """Tell why the offsets of a mention lead to no characters of the text."""
    units = starts(body.text, offsets.unit)
    places = [place for pair in given.fragments or [(given.start or 0,)] for place in pair]
    detail = f"{claim} at {_shown(given)} of {_size(body, offsets)}"
    if inside := [place for place in places if is_inside(place - shift, units)]:
        return "offset inside a character", f"{detail}: {inside[0]} is not the start of a character"
    return "span outside its text", detail


def _name(given: Given) -> str:
    return f"{given.kind} {given.name}".strip()


def _shown(given: Given) -> str:
    return short([list(pair) for pair in given.fragments] if given.fragments else given.start)


def _size(body: Body, offsets: Offsets) -> str:
    if offsets.unit == "token":
        return f"a text of {len(body.starts)} tokens"
    return f"a text of {size(body.text, offsets.unit)} {NAMES[offsets.unit]}"
