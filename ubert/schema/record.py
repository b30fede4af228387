"""One labelled text: the record that every dataset becomes, and its Arrow schema.

Offsets are half-open [start, end) in Unicode code points of `text`, or of `pair` where `side` says so.
Nothing is normalised away: `text` is the source's text.

Rows of a corpus are made by the million: msgspec's structs are made several times faster than dataclasses, and
`gc=False` keeps them from the collector, for they hold no cycles.
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
    """A candidate category, in natural words. `head`, `tail`: the entity types that a relation joins;
    `event`: the event type that a role belongs to."""

    name: str
    kind: Kind
    head: str | None = None
    tail: str | None = None
    event: str | None = None


class Span(Struct, gc=False):
    """A mention. `category` indexes the record's categories; `group` joins the fragments of a discontinuous
    mention, or the mentions of one cluster; `kb_id` is what the source calls it in a knowledge base."""

    start: int
    end: int
    category: int | None = None
    side: Side = "text"
    group: int | None = None
    kb_id: str | None = None


class Relation(Struct, gc=False):
    """`head` and `tail` index the record's spans, `category` its categories."""

    head: int
    tail: int
    category: int


class Argument(Struct, gc=False):
    """`role` indexes the record's categories; exactly one of `span` and `event` (another event) is set."""

    role: int
    span: int | None = None
    event: int | None = None


class Event(Struct, gc=False):
    """`category` indexes the record's categories, `trigger` its spans."""

    category: int
    trigger: int | None = None
    arguments: list[Argument] = []


class Source(Struct, frozen=True, gc=False):
    """Where a record came from: path relative to the dataset's folder, first line (1-based), and the
    hex blake3 of the file, of the group of files, or of the range of a large file that it was read from."""

    path: str
    line: int
    sha: str


class Record(Struct, gc=False):
    """One row of a corpus. `labels` are the positive categories of a classification; `value` a regression
    target; `target` a text to generate."""

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
    """The text without what makes no other text of it: case, width, and how much white space there is."""
    if text.isascii():  # most English: the same in a seventh of the time
        plain = text.encode().translate(_PLAIN)
        return (b" ".join(plain.split()) if b"  " in plain else plain.strip()).decode()
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def content_hash(text: str, pair: str | None) -> bytes:
    """16 bytes that are equal for texts of one normal form: for duplicates."""
    normal = normal_form(text) if pair is None else f"{normal_form(text)}\x1f{normal_form(pair)}"
    return xxhash.xxh3_128_digest(normal.encode("utf-8", "surrogatepass"))


def sampling_key(record_id: str) -> int:
    """A stable unsigned 64-bit key of a record, by which mixtures draw."""
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
        pa.field("kb_id", pa.string()),  # absent from older stores, which are read as if it were null
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
    [
        pa.field("role", pa.int32(), nullable=False),
        pa.field("span", pa.int32()),
        pa.field("event", pa.int32()),
    ]
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
        pa.field("text_hash", pa.binary(16)),  # of the text alone, where there is a pair
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

FILE_SCHEMA = pa.schema(  # source files, of which one is what is read together; records = kept + rejected
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


LONGEST_RAW = 16_384  # characters of a refused row that are kept


class Reject(Struct, frozen=True, gc=False):
    """A raw row that was refused. `reason` is a short phrase to group by; `detail` says it in full, with the
    offending value; `raw` is the row as it was read, of which the store keeps `LONGEST_RAW` characters."""

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
    """A mention that was not where its row says, or whose row does not say where it is and has it several times or
    never. `kind`: mention, trigger, argument, ...; `there`: the text at its offsets; `places`: how often its words
    are in the text; `found`: where it was put, None where it could not be."""

    kind: str
    mention: str
    words: str
    start: int | None
    there: str | None
    places: int
    found: int | None


class Misplaced(Struct, frozen=True, gc=False):
    """A mismatch and its row."""

    path: str
    line: int
    locator: str
    mismatch: Mismatch
