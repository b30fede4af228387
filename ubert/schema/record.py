"""The record, one labelled text, into which every dataset is converted, and its Arrow schema.

Offsets are half-open [start, end) in Unicode code points of `text`, or of `pair` if `side` is "pair".
`text` is the source's text without any normalisation.

A corpus has millions of records. msgspec structs are created several times faster than dataclasses, and `gc=False`
hides them from the garbage collector, which is safe because they hold no cycles.
"""

from __future__ import annotations

import unicodedata
from string import ascii_lowercase, ascii_uppercase
from typing import Literal, get_args

import pyarrow as pa
import xxhash
from msgspec import Struct

SCHEMA_VERSION = 4

Task = Literal[
    "classification", "multilabel", "pair", "choice", "regression", "ner", "relation", "event", "qa",
    "coref", "seq2seq", "text",
]  # fmt: skip
Split = Literal["train", "validation", "test"]
Kind = Literal["label", "entity", "relation", "event", "role", "question", "value"]
Side = Literal["text", "pair"]

TASKS: tuple[Task, ...] = get_args(Task)
SPLITS: tuple[Split, ...] = get_args(Split)


class Category(Struct, frozen=True, gc=False):
    """A candidate category, in natural words.

    Attributes:
        head: entity type of a relation's head.
        tail: entity type of a relation's tail.
        event: event type that a role belongs to.
    """

    name: str
    kind: Kind
    head: str | None = None
    tail: str | None = None
    event: str | None = None


class Span(Struct, gc=False):
    """A mention, or a fragment of one.

    Attributes:
        category: index into the record's categories.
        group: shared by the fragments of a discontinuous mention, or by the mentions of a cluster.
        kb_id: the mention's identifier in a knowledge base, as the source has it.
    """

    start: int
    end: int
    category: int | None = None
    side: Side = "text"
    group: int | None = None
    kb_id: str | None = None


class Relation(Struct, gc=False):
    """A relation. `head` and `tail` index the record's spans, `category` its categories."""

    head: int
    tail: int
    category: int


class Argument(Struct, gc=False):
    """An argument of an event. `role` indexes the record's categories.

    Exactly one of `span` and `event` (another event) is set.
    """

    role: int
    span: int | None = None
    event: int | None = None


class Event(Struct, gc=False):
    """An event. `category` indexes the record's categories, `trigger` its spans."""

    category: int
    trigger: int | None = None
    arguments: list[Argument] = []


class Source(Struct, frozen=True, gc=False):
    """The origin of a record.

    Attributes:
        path: relative to the dataset's folder.
        line: first line, 1-based.
        sha: hex blake3 of the file, group of files, or range of a large file that the record was read from.
    """

    path: str
    line: int
    sha: str


class Record(Struct, gc=False):
    """One row of a corpus.

    Attributes:
        labels: positive categories of a classification, as indices.
        value: target of a regression.
        target: text to generate.
    """

    record_id: str
    corpus: str
    split: Split
    language: str
    task: Task
    instruction: str
    text: str
    source: Source
    pair: str | None = None
    categories: tuple[Category, ...] = ()
    labels: list[int] = []
    value: float | None = None
    target: str | None = None
    spans: list[Span] = []
    relations: list[Relation] = []
    events: list[Event] = []


_SPACES = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
_PLAIN = bytes.maketrans(ascii_uppercase.encode() + _SPACES, ascii_lowercase.encode() + b" " * len(_SPACES))


def normal_form(text: str) -> str:
    """Normalise case, character width (NFKC) and white space, to compare texts."""
    if text.isascii():  # same result, seven times faster for most English
        plain = text.encode().translate(_PLAIN)
        return (b" ".join(plain.split()) if b"  " in plain else plain.strip()).decode()
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def content_hash(text: str, pair: str | None) -> bytes:
    """Hash a text and its pair to 16 bytes, equal for equal normal forms, to find duplicates."""
    normal = normal_form(text) if pair is None else f"{normal_form(text)}\x1f{normal_form(pair)}"
    return xxhash.xxh3_128_digest(normal.encode("utf-8", "surrogatepass"))


def sampling_key(record_id: str) -> int:
    """Return a record's stable unsigned 64-bit key, by which mixtures draw."""
    return xxhash.xxh3_64_intdigest(record_id.encode())


_WORD = pa.dictionary(pa.int32(), pa.string())

CATEGORY = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("head", pa.string()),
        pa.field("tail", pa.string()),
        pa.field("event", pa.string()),
    ]
)
SPAN = pa.struct(
    [
        pa.field("start", pa.int32(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        pa.field("category", pa.int32()),
        pa.field("side", pa.string(), nullable=False),
        pa.field("group", pa.int32()),
        pa.field("kb_id", pa.string()),  # absent from older stores, and read as null
    ]
)
RELATION = pa.struct(
    [
        pa.field("head", pa.int32(), nullable=False),
        pa.field("tail", pa.int32(), nullable=False),
        pa.field("category", pa.int32(), nullable=False),
    ]
)
ARGUMENT = pa.struct(
    [pa.field("role", pa.int32(), nullable=False), pa.field("span", pa.int32()), pa.field("event", pa.int32())]
)
EVENT = pa.struct(
    [
        pa.field("category", pa.int32(), nullable=False),
        pa.field("trigger", pa.int32()),
        pa.field("arguments", pa.list_(ARGUMENT), nullable=False),
    ]
)
SOURCE = pa.struct(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("sha", pa.string(), nullable=False),
    ]
)

RECORD_SCHEMA = pa.schema(
    [
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("key", pa.uint64(), nullable=False),  # sampling_key(record_id)
        pa.field("corpus", _WORD, nullable=False),
        pa.field("split", _WORD, nullable=False),
        pa.field("language", _WORD, nullable=False),
        pa.field("task", _WORD, nullable=False),
        pa.field("instruction", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("pair", pa.string()),
        pa.field("categories", pa.list_(CATEGORY), nullable=False),
        pa.field("labels", pa.list_(pa.int32()), nullable=False),
        pa.field("value", pa.float32()),
        pa.field("target", pa.string()),
        pa.field("spans", pa.list_(SPAN), nullable=False),
        pa.field("relations", pa.list_(RELATION), nullable=False),
        pa.field("events", pa.list_(EVENT), nullable=False),
        pa.field("source", SOURCE, nullable=False),
        pa.field("characters", pa.int32(), nullable=False),  # of text and pair
        pa.field("content_hash", pa.binary(16), nullable=False),
        pa.field("text_hash", pa.binary(16)),  # hash of the text without its pair; null if there is no pair
    ],
    metadata={b"ubert.schema_version": str(SCHEMA_VERSION).encode()},
)

REJECT_SCHEMA = pa.schema(
    [
        pa.field("corpus", _WORD, nullable=False),
        pa.field("split", _WORD, nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
    ],
    metadata={b"ubert.schema_version": str(SCHEMA_VERSION).encode()},
)

FILE_SCHEMA = pa.schema(  # one row per source file, or group of files read together; records = kept + rejected
    [
        pa.field("corpus", _WORD, nullable=False),
        pa.field("split", _WORD, nullable=False),
        pa.field("labelled", pa.bool_(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("blake3", pa.string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("kept", pa.int64(), nullable=False),
        pa.field("rejected", pa.int64(), nullable=False),
    ],
    metadata={b"ubert.schema_version": str(SCHEMA_VERSION).encode()},
)


LONGEST_RAW = 16_384  # characters of a rejected row that the store keeps


class Reject(Struct, frozen=True, gc=False):
    """A raw row that was rejected.

    Attributes:
        reason: short phrase to group rejects by.
        detail: the full reason, with the offending value.
        raw: the row as it was read; the store keeps its first `LONGEST_RAW` characters.
    """

    path: str
    line: int
    reason: str
    detail: str
    raw: str


MISMATCH_SCHEMA = pa.schema(
    [
        pa.field("corpus", _WORD, nullable=False),
        pa.field("split", _WORD, nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("locator", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("mention", pa.string(), nullable=False),
        pa.field("words", pa.string(), nullable=False),
        pa.field("start", pa.int64()),
        pa.field("there", pa.string()),
        pa.field("places", pa.int32(), nullable=False),
        pa.field("found", pa.int32()),
    ],
    metadata={b"ubert.schema_version": str(SCHEMA_VERSION).encode()},
)


class Mismatch(Struct, frozen=True, gc=False):
    """A mention whose text differs from the text at its offsets, or that has no offsets and no unique match.

    Attributes:
        kind: mention, trigger, argument, ...
        there: text at the given offsets.
        places: number of occurrences of the mention's words in the text.
        found: start that the mention was moved to; None if it could not be placed.
    """

    kind: str
    mention: str
    words: str
    start: int | None
    there: str | None
    places: int
    found: int | None


class Misplaced(Struct, frozen=True, gc=False):
    """A mismatch and the row that it occurs in."""

    path: str
    line: int
    locator: str
    mismatch: Mismatch
