"""Pairs of matching records side by side, with their shared words marked."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, NamedTuple

from pipelines.audit.shingles import Word, placed_words
from pipelines.browse.records import SECONDS, by_id
from pipelines.mixtures.sql import literal
from pipelines.report.facts import Fact
from pipelines.report.records import shown
from pipelines.report.visible import shortened, visible
from pipelines.store.storage import StorePath
from pipelines.store.warehouse import sql
from ubert.schema.record import Record

PAIRS = 10  # per page
GROUPS = 30  # maximum number of counts by corpus, split and kind
WORDS = 400  # maximum number of words of a record to compare
BEFORE = 40  # of these, words before the n-gram that two records share
AROUND, LONG = 300, 1_500  # characters to show around shared words, and the least to show of a long text

Characters = tuple[int, int]  # [start, end)


class View(NamedTuple):
    """An SQL view of matches.

    `other` is the prefix of the second record's columns, and `kind` is SQL for the kind of a match.
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
        "A record's annotation differs from that of the first record with the same text and question.",
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
    """A piece of a text, and whether the other text contains it too."""

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
    """Two records, the facts of their match, and how many blocks of words they share."""

    sides: tuple[Side, Side]
    kind: str
    facts: list[tuple[str, str]]
    shared: int


def groups(root: StorePath, view: str, wanted: Wanted) -> list[dict[str, Any]]:
    """Count the pairs by corpus, split and kind, and return the highest counts."""
    columns = "corpus, split, other_corpus, other_split, kind"
    statement = (
        f"SELECT {columns}, count(*) AS times FROM ({_sql(view, wanted)}) GROUP BY ALL "
        f"ORDER BY times DESC, {columns} LIMIT {GROUPS}"
    )
    return sql(root, statement, [], SECONDS).to_pylist()  # type: ignore[no-any-return]


def matches(root: StorePath, record_id: str) -> dict[str, int]:
    """Count the pairs of a record in each view, and leave out views without any."""
    wanted = Wanted(record=record_id)
    counts = (f"SELECT '{view}' AS view, count(*) AS times FROM ({_sql(view, wanted)})" for view in VIEWS)
    rows = sql(root, " UNION ALL ".join(counts), [], SECONDS).to_pylist()
    return {row["view"]: row["times"] for row in rows if row["times"]}


def pairs(root: StorePath, view: str, wanted: Wanted, page: int) -> tuple[list[Pair], bool]:
    """Return the pairs of a page, and whether there are more."""
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
    ngram = (row.get("ngram") or "").replace("|", "")  # the separator between text and pair
    one, other = records.get(row["record_id"]), records.get(row["other_record_id"])
    shared = _shared(_window(one, ngram), _window(other, ngram), len(ngram.split()) or 1)
    values = [(name.replace("_", " "), _format(row[name])) for name in facts]
    sides = _side(row, "", one, shared[0]), _side(row, "other_", other, shared[1])
    return Pair(sides, row["kind"], values, len(shared[0]))


def _side(row: dict[str, Any], of: str, record: Record | None, shared: list[Characters]) -> Side:
    return Side(
        row[f"{of}record_id"],
        row[f"{of}corpus"],
        row[f"{of}split"],
        _pieces(_whole(record), shared) if record else [],
        shown(record).facts if record else [],
        record is not None,
    )


def _format(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else shortened(str(value), 300)


def _whole(record: Record) -> str:
    """Return the text, and the pair as a paragraph after it."""
    return record.text if record.pair is None else f"{record.text}\n\n{record.pair}"


def _window(record: Record | None, ngram: str) -> list[Word]:
    """Return the words to compare: the first words of the record, or those around an n-gram."""
    words, start = placed_words(_whole(record)) if record else [], 0
    if ngram:
        sought, names = ngram.split(), [word.normal for word in words]
        at = next((i for i in range(len(names)) if names[i : i + len(sought)] == sought), 0)
        start = max(0, at - BEFORE)
    return words[start : start + WORDS]


def _shared(a: list[Word], b: list[Word], least: int) -> tuple[list[Characters], list[Characters]]:
    """Find the blocks of at least `least` words that both lists have in the same order."""
    matcher = SequenceMatcher(None, [word.normal for word in a], [word.normal for word in b], autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size >= least]
    return (
        [(a[block.a].start, a[block.a + block.size - 1].end) for block in blocks],
        [(b[block.b].start, b[block.b + block.size - 1].end) for block in blocks],
    )


def _pieces(text: str, shared: list[Characters]) -> list[Piece]:
    """Split a text into shared blocks and the text around them. Cut a long text before and after these."""
    first, last = (shared[0][0], shared[-1][1]) if shared else (0, 0)
    start, stop = max(0, first - AROUND), min(len(text), max(last + AROUND, first + LONG))
    bounds = [start, *(at for pair in shared for at in pair), stop]
    pieces = [Piece(visible(text[a:b]), i % 2 == 1) for i, (a, b) in enumerate(pairwise(bounds))]
    before = [Piece(f"… ({start:,} characters before) ", False)] if start else []
    after = [Piece(f" … ({len(text) - stop:,} characters more)", False)] if stop < len(text) else []
    return before + pieces + after
