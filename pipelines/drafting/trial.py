"""Tests a guess: runs the mapper on sample rows, and scores the result."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from pipelines.drafting.categories import Labels, counted
from pipelines.drafting.tasks.guess import Guess
from pipelines.mapping.annotations.units import NAMES, size
from pipelines.mapping.conditions import row_filter
from pipelines.mapping.mapper import mapper
from pipelines.mapping.refused import RefusedError, as_json
from pipelines.sources import END, RawRow, Slice
from pipelines.sources.places import reject_place
from ubert.schema.record import Record, Reject
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.mapping import Mapping, Unit

FEW = 60  # rows to test a laxer way on first
GOOD = 0.99  # share of rows from which no laxer way is tested
HARDLY = 0.05  # share of rows below which offsets are not what they seem
UNITS: tuple[Unit, ...] = ("character", "utf16", "byte")  # of offsets into a text
Rows = Sequence[tuple[int, RawRow]]  # each with the index of its entry in `files`


@dataclass
class Trial:
    """The result of mapping sample rows."""

    guess: Guess
    spec: DatasetSpec
    labels: Labels
    kept: list[Record] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    rows: Counter[int] = field(default_factory=Counter)  # by index of the entry in `files`
    by_entry: Counter[int] = field(default_factory=Counter)  # records, by the same index
    firsts: dict[str, str] = field(default_factory=dict)  # the first rejected row of each reason

    @property
    def unlabelled(self) -> set[int]:
        """Return the entries without any record, if others have some: published without labels."""
        return {place for place in self.rows if not self.by_entry[place]} if self.kept else set()

    @property
    def share(self) -> float:
        """Return the share of rows that became records, in entries with labels. Each entry without
        labels lowers it."""
        unlabelled = self.unlabelled
        rows = sum(count for place, count in self.rows.items() if place not in unlabelled)
        return len(self.kept) / rows * 0.95 ** len(unlabelled) if rows else 0.0

    @property
    def score(self) -> float:
        """Return the likelihood of the guess after the test."""
        says = 1 if self.says_something else 0.2
        return self.guess.score * self.share**2 * (0.4 + 0.6 * self.fit) * says * self.agreement**2

    @property
    def says_something(self) -> bool:
        """Tell whether any record has the annotations of its task; always true for tasks without spans."""
        if self.spec.task in ("ner", "relation", "event", "coref", "qa"):
            found = [record.relations or record.events or record.spans for record in self.kept]
            need = {"relation": "relations", "event": "events"}.get(self.spec.task)
            return any(getattr(record, need) for record in self.kept) if need else any(found)
        return True

    @property
    def agreement(self) -> float:
        """Return how often repeated texts have their most frequent label, 0 to 1; 1 if few texts are repeated. A
        label that does not depend on the text alone differs more often."""
        if self.spec.task not in ("classification", "pair"):
            return 1.0
        of_text: defaultdict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
        for record in self.kept:
            of_text[record.text, record.pair][str(record.labels)] += 1
        again = [labels for labels in of_text.values() if labels.total() > 1]
        total = sum(labels.total() for labels in again)
        return sum(max(labels.values()) for labels in again) / total if total > 0.1 * len(self.kept) else 1.0

    @property
    def fit(self) -> float:
        """Return the share of mentions that begin and end at word boundaries."""
        edges = [_at_words(record.text, span.start, span.end) for record in self.kept for span in record.spans]
        return sum(edges) / len(edges) if edges else 1.0


def _at_words(text: str, start: int, end: int) -> bool:
    """Tell whether a span has no white space at its ends, and cuts no word of ASCII letters or digits."""
    cut = any(
        0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum() and text[at - 1 : at + 1].isascii()
        for at in (start, end)
    )
    return not cut and not text[start:end][:1].isspace() and not text[start:end][-1:].isspace()


def tried(guess: Guess, shared: dict[str, Any], rows: Rows) -> Trial | None:
    """Test the ways to read a guess's offsets, and return the best. Return None if no row becomes a record."""
    guess = _in_unit(guess, shared, rows)
    best: Trial | None = None
    few = random.Random(0).sample(rows, min(FEW, len(rows)))
    for offsets in _ways(guess):
        if "locate" in offsets and (best is None or best.share < HARDLY) and "'start'" in str(guess.map):
            by_words = _by_words(guess.map)
            if by_words != guess.map:  # offsets that fit hardly any text count something else
                why = (*guess.reasons, "its offsets fit few texts, so its words are searched for")
                return tried(guess._replace(map=by_words, reasons=why), shared, rows)
        mapping = {key: item for key, item in guess.map.items() if key != "offsets"}
        way = guess._replace(map={**mapping, **({"offsets": offsets} if offsets else {})})
        if best and (first := _tried(way, shared, few)) is not None and first.score < best.score:
            continue
        trial = _tried(way, shared, rows)
        if trial and (best is None or trial.score > best.score * 1.005):
            best = trial
        if best and best.share >= GOOD and best.fit >= GOOD:
            break
    return best if best and best.kept else None


def _in_unit(guess: Guess, shared: dict[str, Any], rows: Rows) -> Guess:
    """Add the unit of a guess's offsets, if UTF-16 units or bytes fit better than characters. They are compared on
    rows with letters beyond ASCII, because only there they differ."""
    offsets, written = guess.map.get("offsets", {}), str(guess.map)
    placed = any(word in written for word in ("'start'", "'fragments'", "'standoff'", "'answers'"))
    if not placed or offsets.get("unit", "character") != "character" or not (told := _beyond_ascii(rows)):
        return guess
    scores: dict[Unit, float] = {}
    for unit in UNITS:
        ways = [{**guess.map, "offsets": {**offsets, **end, "unit": unit}} for end in _ends(written)]
        trials = [_tried(guess._replace(map=way), shared, told) for way in ways]
        scores[unit] = max((trial.score for trial in trials if trial), default=0.0)
    best = max(UNITS, key=scores.__getitem__)
    if scores[best] <= scores["character"] * 1.005:
        return guess
    why = f"its offsets count {NAMES[best]}: in characters, they fit fewer of the texts beyond ASCII"
    return guess._replace(map={**guess.map, "offsets": {**offsets, "unit": best}}, reasons=(*guess.reasons, why))


def _beyond_ascii(rows: Rows) -> Rows:
    """Return some rows with letters beyond ASCII, first those with emoji or other pairs of UTF-16 units."""
    texts = [as_json(row.content) for _, row in rows]
    several = [0 if text.isascii() else 1 + (size(text, "utf16") > len(text)) for text in texts]
    order = sorted(range(len(rows)), key=lambda number: -several[number])
    return [rows[number] for number in order[:FEW] if several[number]]


def _ends(written: str) -> list[dict[str, str]]:
    return [{}, {"end": "inclusive"}] if "'end'" in written else [{}]


def _by_words(given: Any) -> Any:
    """Remove the offsets of mentions that have words."""
    if isinstance(given, dict):
        dropped = {"start", "end", "indices"} if "words" in given else set()
        return {key: _by_words(item) for key, item in given.items() if key not in dropped}
    return [_by_words(item) for item in given] if isinstance(given, list) else given


def _ways(guess: Guess) -> Iterator[dict[str, str]]:
    """Yield `offsets`, strictest first."""
    written = str(guess.map)
    given = {key: item for key, item in guess.map.get("offsets", {}).items() if item != "character"}
    if not any(word in written for word in ("'start'", "'words'", "'indices'", "'standoff'", "'answers'")):
        yield given
        return
    folded = {"compare": "folded"}
    for locate in ({}, {"locate": "unique"}, {"locate": "nearest"}, {"locate": "first"}):
        for compare in ({}, folded):
            for end in _ends(written):
                yield {**given, **end, **compare, **locate}


def _tried(guess: Guess, shared: dict[str, Any], rows: Rows) -> Trial | None:
    try:
        mapping = Mapping.model_validate(guess.map)
        labels = counted(guess.task, mapping, (row.content for _, row in rows))
        content = {**shared, "task": guess.task, "map": guess.map, "categories": labels.categories()}
        spec = DatasetSpec.model_validate(content)
    except (ValidationError, ValueError, KeyError):
        return None
    trial = Trial(guess, spec, labels)
    try:
        run(trial, rows)
    except (RefusedError, TypeError, AttributeError):  # the path leads to another type in other rows
        return None
    return trial


def described(row: Reject) -> str:
    """Tell where a rejected row is and what is wrong with it."""
    return "{}: {}".format(*reject_place(row.path, row.line, row.detail))


def run(trial: Trial, rows: Rows) -> None:
    """Map rows, and count the results, without the rows that `when` leaves out."""
    spec, to_record, wanted = trial.spec, {}, row_filter(trial.spec.map)
    for place, row in rows:
        if not wanted(row):
            continue
        if place not in to_record:
            to_record[place] = mapper(spec, spec.files[place].split)
        path = row.locator.split("#")[0].rpartition(":")[0] or row.locator
        trial.rows[place] += 1
        record = to_record[place](Slice("", path, 0, END, 1, "utf-8", "0" * 64), row)
        if isinstance(record, Reject):
            trial.reasons[record.reason] += 1
            trial.firsts.setdefault(record.reason, described(record))
        else:
            trial.kept.append(record)
            trial.by_entry[place] += 1
