"""The optimised code for rows gives the same results as plain code."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import jsonlines
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from worlds import World, numbers

import pipelines.ingest.run_unit
import pipelines.sources
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice, reader
from pipelines.sources.parsing.text import lines
from pipelines.specs import dataset_spec
from ubert.schema.record import Reject, content_hash
from ubert.schema.specs.dataset import DatasetSpec

TEXTS = st.text(
    st.sampled_from("aZ \t\n\r\x0b\x0c\x1c\x1f\x7f\xa0\u2003\u00c5\ufb01\u0130\u00df\ud800") | st.characters()
)


def plain_hash(text: str, pair: str | None) -> bytes:
    parts = [text] if pair is None else [text, pair]
    normal = "\x1f".join(" ".join(unicodedata.normalize("NFKC", part).casefold().split()) for part in parts)
    return xxhash.xxh3_128_digest(normal.encode("utf-8", "surrogatepass"))


@given(text=TEXTS | st.text(st.characters(max_codepoint=127)), pair=st.none() | TEXTS)
@example(text=" Two  words ", pair=None)
@example(text="\x1f", pair="")
def test_the_hash_of_a_text_is_that_of_its_normal_form(text: str, pair: str | None) -> None:
    assert content_hash(text, pair) == plain_hash(text, pair)


def plain_row(line: str) -> object:
    """A row as Python's own parser reads it: an object, reasons, or nothing."""
    if not line or line.isspace():
        return None
    twice = []

    def observed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.append(len(dict(pairs)) < len(pairs))
        return dict(pairs)

    try:
        row = jsonlines.Reader([line], loads=partial(json.loads, object_pairs_hook=observed)).read(type=dict)
    except (jsonlines.InvalidLineError, RecursionError):
        return {"not JSON", "not an object"}
    return {"repeated key"} if any(twice) else row


NUMBERS = ["NaN", "-Infinity", "1e400", "-0.0", "0.1", "1E5", "01", "9" * 30, "-" + "9" * 19, "9" * 5000, "5e-324"]
STRINGS = [
    r'"\ud83d\ude00"',
    r'"\ud800"',
    '"\ud800"',
    r'"\udc00\ud800"',
    r'"\u0000"',
    '"\x7f"',
    '"\x01"',
    '"\t"',
    r'"\x"',
    '"a: b"',
    r'"\u003a"',
]
JSON = st.recursive(
    st.sampled_from([*NUMBERS, *STRINGS, "null", "true", "nul"])
    | st.floats().map(json.dumps)
    | st.integers().map(str)
    | st.text(max_size=5).map(json.dumps)
    | st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: "[" + ",".join(parts) + "]")
        | st.lists(st.tuples(st.sampled_from(['"a"', '"b"', r'"\u0061"', "a", '""']), inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=6,
)
LINE = st.tuples(
    st.sampled_from(["", " ", "\ufeff", "\x1e", "\x0b"]), JSON, st.sampled_from(["", " ", "x", "}"])
).map("".join)


@settings(max_examples=500)
@given(line=LINE | JSON.map(lambda value: '{"a": ' + value + "}") | st.text(max_size=4))
@example(line='{"a": ' + "[" * 600 + "]" * 600 + "}")
@example(line=r'{"a": 1, "a": "\u003a"}')
@example(line='{"a": [' + ",".join(["[]"] * 600) + "]}")
def test_a_json_line_is_read_as_pythons_own_parser_does(
    tmp_path_factory: pytest.TempPathFactory, line: str
) -> None:
    line = line.replace("\n", " ").replace("\r", " ")
    path = tmp_path_factory.getbasetemp() / "line.jsonl"
    data = line.encode("utf-8", "surrogatepass")
    path.write_bytes(data)
    options = reader("jsonl").Options()
    rows = list(reader("jsonl").read(Slice(str(path.parent), path.name, 0, len(data), 1, "utf-8", "0"), options))
    expected = plain_row(line)
    if any("\ud800" <= letter <= "\udfff" for letter in line):
        assert [row.reason for row in rows if isinstance(row, Reject)] == ["wrong encoding"]
    elif expected is None:
        assert rows == []
    elif isinstance(expected, set):
        assert [row.reason in expected for row in rows if isinstance(row, Reject)] == [True]
    else:
        # As text, for what is not a number equals nothing, and 1 equals 1.0.
        assert [repr(row.content) for row in rows if isinstance(row, RawRow)] == [repr(expected)]


def test_however_deep_a_line_is_nested_it_is_a_record_or_a_reject(tmp_path: Path) -> None:
    head = dict(
        name="n", description="d", task="classification", language="en", licence="CC0-1.0", instruction="i"
    )
    files, fields = [{"split": "train", "path": "x"}], {"text": "text", "label": "label"}
    form = dict(format="jsonl", files=files, map=fields, categories={"label": {"a": "x"}})
    to_record = mapper(DatasetSpec.model_validate({**head, **form}), "train")
    data = b"".join(
        b'{"label": "a", "text": ' + b"[" * depth + b"]" * depth + b"}\n" for depth in range(400, 1100)
    )
    (tmp_path / "x").write_bytes(data)
    piece = Slice(str(tmp_path), "x", 0, len(data), 1, "utf-8", "0")
    rows = list(reader("jsonl").read(piece, reader("jsonl").Options()))
    made = [row if isinstance(row, Reject) else to_record(piece, row) for row in rows]
    assert {row.reason for row in made if isinstance(row, Reject)} == {"wrong type", "not JSON"}
    assert len(made) == 700


@settings(deadline=None)
@given(
    parts=st.lists(
        st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"\xc3\xa9", b"\xe9", b"\xef\xbb\xbf"]), max_size=12
    ),
    block=st.integers(1, 5),
    encoding=st.sampled_from(["utf-8", "latin-1", "gb18030"]),
)
def test_lines_are_the_same_whatever_the_size_of_a_block(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], block: int, encoding: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "blocks"
    data = b"".join(parts)
    path.write_bytes(data)
    piece = Slice(str(path.parent), path.name, 0, len(data), 1, encoding, "0")
    whole = list(lines(piece))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines.sources, "BLOCK_BYTES", block)
        assert list(lines(piece)) == whole
        assert b"".join(piece.blocks()) == data
        assert all(part.endswith(b"\n") for part in list(piece.blocks())[:-1])


@given(line=st.text(st.sampled_from("ab \t\xa0\x0b"), max_size=8))
def test_only_spaces_and_tabs_part_columns(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    path = tmp_path_factory.getbasetemp() / "columns"
    path.write_text(line + "\n", encoding="utf-8")
    wanted = [word for word in re.split("[ \t]", line) if word]
    options = reader("conll").Options(columns=[f"c{i}" for i in range(max(1, len(wanted)))])
    size = path.stat().st_size
    rows = list(reader("conll").read(Slice(str(path.parent), path.name, 0, size, 1, "utf-8", "0"), options))
    read = [[column[0] for column in row.content.values()] for row in rows if isinstance(row, RawRow)]
    assert read == ([] if not line or line.isspace() else [wanted])


def test_long_texts_are_written_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.spec()
    world.source("".join(json.dumps({"text": "a" * 100, "label": "0"}) + "\n" for _ in range(40)))
    spec = dataset_spec("toy", world.specs)
    [unit] = plan(spec, world.data / "toy").units
    monkeypatch.setattr(pipelines.ingest.run_unit, "CHUNK_CHARACTERS", 1_000)
    assert run_unit(unit, spec, tmp_path) == 40
    assert groups(tmp_path / unit.part) == [10] * 4


def groups(path: Path) -> list[int]:
    """Return the number of rows of each row group."""
    found = pq.ParquetFile(path).metadata
    return [found.row_group(number).num_rows for number in range(found.num_row_groups)]


@pytest.mark.parametrize(
    ("limit", "most", "kept", "refused"),
    [("CHUNK_ROWS", 4, [3, 2, 2], [1, 2]), ("CHUNK_CHARACTERS", 40, [4, 3], [1, 2])],
)
def test_kept_and_refused_rows_are_written_a_few_at_a_time(
    limit: str, most: int, kept: list[int], refused: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kept row has a text of eight characters, and so has each refused one."""
    world = World(tmp_path)
    world.spec()
    world.source("".join(numbers([n]) if kind == "k" else "{1234567\n" for n, kind in enumerate("kkrkkrrkkk")))
    spec = dataset_spec("toy", world.specs)
    [unit] = plan(spec, world.data / "toy").units
    monkeypatch.setattr(pipelines.ingest.run_unit, limit, most)
    assert run_unit(unit, spec, tmp_path) == 10
    assert (groups(tmp_path / unit.part), groups(tmp_path / unit.reject_part)) == (kept, refused)
