"""Evidence side by side: two records, and the words that they share."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, NamedTuple

from pipelines.audit.shingles import Word, placed_words
from pipelines.browse.records import SECONDS, by_id
from pipelines.mixtures.sql import literal
from pipelines.report.records import Fact, shown
from pipelines.report.visible import shortened, visible
from pipelines.store.storage import Place
from pipelines.store.warehouse import sql
from ubert.schema.record import Record

PAIRS = 10  # of a page
GROUPS = 30  # of pairs that are counted by corpus and split
WORDS = 400  # of a record that are compared
BEFORE = 40  # of them before the n-gram that two records share
AROUND, LONG = 300, 1_500  # characters that are shown around shared words, and of a text at least

Characters = tuple[int, int]  # [start, end)


class View(NamedTuple):
    """A view of evidence.

    `other` is what the names of the second record's columns begin with, and `kind` is SQL for the kind of a match.
    `facts` are the other columns that a page shows.
    """

    other: str
    kind: str
    facts: tuple[str, ...]
    meaning: str
    made_by: str


VIEWS = {
    "duplicates": View("keeper", "kind", ("similarity",), "A record repeats its keeper.", "ubert duplicates"),
    "contradictions": View(
        "keeper",
        "differs",
        ("annotation", "keeper_annotation"),
        "The first record of a text and question says otherwise.",
        "ubert duplicates",
    ),
    "leaks": View(
        "evaluation", "kind", ("similarity",), "A record's text is in an evaluation split.", "ubert duplicates"
    ),
    "contamination": View(
        "evaluation",
        "'n-gram'",
        ("ngrams", "share", "records", "ngram"),
        "A training record shares n-grams with a record of an evaluation split.",
        "ubert contamination",
    ),
    "dropped": View(
        "kept", "kind", ("mixture", "reason"), "A mixture leaves out a record because of another.", "ubert mix"
    ),
}


class Wanted(NamedTuple):
    """A filter for the pairs of a view. An empty field filters nothing. `record` is the id of either record."""

    corpus: str = ""
    other: str = ""
    kind: str = ""
    mixture: str = ""
    record: str = ""


class Piece(NamedTuple):
    """Words of a text, and whether the other text has them, too."""

    words: str
    shared: bool


class Side(NamedTuple):
    """One record of a pair. `here` is false if the store no longer has it."""

    record_id: str
    corpus: str
    split: str
    pieces: list[Piece]
    facts: list[Fact]
    here: bool


class Pair(NamedTuple):
    """Two records, what their match says, and how many blocks of words they share."""

    sides: tuple[Side, Side]
    kind: str
    facts: list[tuple[str, str]]
    shared: int


def groups(root: Place, view: str, wanted: Wanted) -> list[dict[str, Any]]:
    """How many pairs there are, by corpus, split and kind: the most frequent ones."""
    columns = "corpus, split, other_corpus, other_split, kind"
    statement = (
        f"SELECT {columns}, count(*) AS times FROM ({_sql(view, wanted)}) GROUP BY ALL "
        f"ORDER BY times DESC, {columns} LIMIT {GROUPS}"
    )
    return sql(root, statement, [], SECONDS).to_pylist()  # type: ignore[no-any-return]


def matches(root: Place, record_id: str) -> dict[str, int]:
    """How many pairs a record is in, by view; views without any are left out."""
    wanted = Wanted(record=record_id)
    counts = (f"SELECT '{view}' AS view, count(*) AS times FROM ({_sql(view, wanted)})" for view in VIEWS)
    rows = sql(root, " UNION ALL ".join(counts), [], SECONDS).to_pylist()
    return {row["view"]: row["times"] for row in rows if row["times"]}


def pairs(root: Place, view: str, wanted: Wanted, page: int) -> tuple[list[Pair], bool]:
    """The pairs of a page, and whether there are more."""
    rows = sql(
        root, f"{_sql(view, wanted)} LIMIT {PAIRS + 1} OFFSET {(page - 1) * PAIRS}", [], SECONDS
    ).to_pylist()
    more, rows = len(rows) > PAIRS, rows[:PAIRS]
    ids = [(row[f"{of}corpus"], row[f"{of}record_id"]) for row in rows for of in ("", "other_")]
    records = by_id(root, ids)
    return [_pair(row, records, VIEWS[view].facts) for row in rows], more


def _sql(view: str, wanted: Wanted) -> str:
    other, kind, facts, *_ = VIEWS[view]
    columns = (
        f"record_id, corpus, split, {other}_id AS other_record_id, {other}_corpus AS other_corpus, "
        f"{other}_split AS other_split, {kind} AS kind, {', '.join(facts)}"
    )
    chosen = {"corpus": wanted.corpus, "other_corpus": wanted.other, "kind": wanted.kind}
    conditions = [f"{column} = {literal(value)}" for column, value in chosen.items() if value]
    if wanted.mixture and view == "dropped":
        conditions.append(f"mixture = {literal(wanted.mixture)}")
    if wanted.record:
        conditions.append(f"{literal(wanted.record)} IN (record_id, other_record_id)")
    return f"SELECT * FROM (SELECT {columns} FROM {view}) WHERE {' AND '.join(conditions) or 'true'}"


def _pair(row: dict[str, Any], records: dict[str, Record], facts: Sequence[str]) -> Pair:
    ngram = (row.get("ngram") or "").replace("| ", "")  # between text and pair
    one, other = records.get(row["record_id"]), records.get(row["other_record_id"])
    shared = _shared(_window(one, ngram), _window(other, ngram), len(ngram.split()) or 1)
    said = [(name.replace("_", " "), _said(row[name])) for name in facts]
    sides = _side(row, "", one, shared[0]), _side(row, "other_", other, shared[1])
    return Pair(sides, row["kind"], said, len(shared[0]))


def _side(row: dict[str, Any], of: str, record: Record | None, shared: list[Characters]) -> Side:
    return Side(
        row[f"{of}record_id"],
        row[f"{of}corpus"],
        row[f"{of}split"],
        _pieces(_whole(record), shared) if record else [],
        shown(record).facts if record else [],
        record is not None,
    )


def _said(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else shortened(str(value), 300)


def _whole(record: Record) -> str:
    """The text, and the pair in a paragraph of its own."""
    return record.text if record.pair is None else f"{record.text}\n\n{record.pair}"


def _window(record: Record | None, ngram: str) -> list[Word]:
    """The words that are compared: the first ones, or those around an n-gram."""
    words, start = placed_words(_whole(record)) if record else [], 0
    if ngram:
        sought, names = ngram.split(), [word.normal for word in words]
        at = next((i for i in range(len(names)) if names[i : i + len(sought)] == sought), 0)
        start = max(0, at - BEFORE)
    return words[start : start + WORDS]


def _shared(a: list[Word], b: list[Word], least: int) -> tuple[list[Characters], list[Characters]]:
    """The blocks of at least so many words that both have in the same order."""
    matcher = SequenceMatcher(None, [word.normal for word in a], [word.normal for word in b], autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size >= least]
    return (
        [(a[block.a].start, a[block.a + block.size - 1].end) for block in blocks],
        [(b[block.b].start, b[block.b + block.size - 1].end) for block in blocks],
    )


def _pieces(text: str, shared: list[Characters]) -> list[Piece]:
    """A text with its shared blocks; of a long one what lies around them."""
    first, last = (shared[0][0], shared[-1][1]) if shared else (0, 0)
    start, stop = max(0, first - AROUND), min(len(text), max(last + AROUND, first + LONG))
    bounds = [start, *(at for pair in shared for at in pair), stop]
    pieces = [Piece(visible(text[a:b]), i % 2 == 1) for i, (a, b) in enumerate(pairwise(bounds))]
    before = [Piece(f"… ({start:,} characters before) ", False)] if start else []
    after = [Piece(f" … ({len(text) - stop:,} characters more)", False)] if stop < len(text) else []
    return before + pieces + after
