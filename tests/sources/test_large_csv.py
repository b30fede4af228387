"""A large CSV file is cut between records, even if quoted fields contain line ends."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World

from pipelines.ingest import change_detection
from pipelines.ingest.hashes import ranges
from pipelines.sources import Quoted, RawRow, Slice, reader
from pipelines.sources.parsing import csv as csv_records
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

TABLE = reader("table")
FIELDS = st.text(st.sampled_from('ab",é \n\r'), max_size=12)


def read(path: Path, start: int, stop: int, line: int, columns: list[str] | None) -> list[RawRow | Reject]:
    options = TABLE.Options(separator=",", quoting="csv", header=columns is None, columns=columns)
    return list(TABLE.read(Slice(str(path.parent), path.name, start, stop, line, "utf-8", "0" * 64), options))


def in_parts(path: Path, limit: int, columns: list[str] | None = None) -> list[RawRow | Reject]:
    found = ranges(str(path), Quoted(","), limit)
    return [row for part in found for row in read(path, part.start, part.stop, part.line, columns)]


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=12),
    end=st.sampled_from(["\n", "\r\n"]),
    limit=st.integers(1, 60),
)
def test_a_cut_file_has_the_rows_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str, limit: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "x.csv"
    written = io.StringIO()
    lone = any("\r" in field for row in rows for field in row)  # for which the writer sees no need of quotes
    csv.writer(written, lineterminator=end, quoting=csv.QUOTE_ALL if lone else csv.QUOTE_MINIMAL).writerows(
        [("m", "n"), *rows]
    )
    path.write_bytes(written.getvalue().encode())
    whole = read(path, 0, path.stat().st_size, 1, None)
    assert [tuple(row.content.values()) for row in whole if isinstance(row, RawRow)] == rows
    assert in_parts(path, limit) == whole


@settings(max_examples=300, deadline=None)
@given(
    content=st.text(st.sampled_from('a",é\n\r'), max_size=60),
    limit=st.integers(1, 60),
    longest=st.integers(1, 20),
)
def test_no_two_rows_of_any_file_have_one_place(
    tmp_path_factory: pytest.TempPathFactory, content: str, limit: int, longest: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "y.csv"
    path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_records, "MAX_RECORD_BYTES", longest)
        found = in_parts(path, limit, ["m"])
    lines = [row.line for row in found]
    assert lines == sorted(set(lines))
    assert lines[-1:] <= [len(list(io.StringIO(content, newline="")))]
    begun = "".join(dict.fromkeys(content)).strip("\n\r")
    assert bool(lines) == bool(begun)


def test_a_stray_quote_ends_where_the_file_is_cut(tmp_path: Path) -> None:
    """It would take all that follows; the records behind it are not lost."""
    path = tmp_path / "z.csv"
    path.write_text('"a,1\n' + "".join(f"b{i},2\n" for i in range(400_000)))
    found = in_parts(path, 1 << 20, ["m", "n"])
    assert [(row.line, row.reason) for row in found if isinstance(row, Reject)] == [(1, "not CSV")]
    assert sum(isinstance(row, RawRow) for row in found) == 400_000


@pytest.mark.parametrize("limit", range(1000, 1045, 4))
def test_a_quote_in_a_field_without_quotes_hides_no_open_field(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "w.csv"
    path.write_text('0,a 6" pipe\n' + "".join(f'{n},"line one\n{n},line two"\n' for n in range(1, 400)))
    found = in_parts(path, limit, ["m", "n"])
    assert len(found) == 400
    assert found == read(path, 0, path.stat().st_size, 1, ["m", "n"])


@pytest.mark.parametrize("limit", [1, 6, 12])
def test_a_quote_after_a_byte_order_mark_opens_a_field(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "b.csv"
    path.write_text('\ufeff"one\ntwo","1"\n"three\nfour","2"\n')
    found = in_parts(path, limit, ["m", "n"])
    assert [row.content["n"] for row in found if isinstance(row, RawRow)] == ["1", "2"]
    assert len(found) == 2


@pytest.mark.parametrize(
    ("content", "cut", "lacks"),
    [
        (b'a"b,1\nc,2\n', 6, b""),  # a quote amid a field opens nothing
        (b'"a\nb",1\nc,2\n', 3, b'b",1\n'),
        (b'"a\nb",1\n"c",2\n', 3, b'b",1\n'),
    ],
)
def test_a_cut_file_continues_to_the_end_of_its_last_record(content: bytes, cut: int, lacks: bytes) -> None:
    file = io.BytesIO(content)
    assert csv_records.rest_of_record(file, file.read(cut), ",") == lacks


def test_a_quote_that_nothing_closes_for_long_is_a_stray_one(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'"a\n' + b"b\n" * 10 + b'c"\n'
    for longest, lacks in ((100, content[3:]), (8, b"")):
        monkeypatch.setattr(csv_records, "MAX_RECORD_BYTES", longest)
        file = io.BytesIO(content)
        assert csv_records.rest_of_record(file, file.read(3), ",") == lacks


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_corpus_is_made_of_a_cut_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_detection, "UNIT_BYTES", 2_000)
    world = World(tmp_path)
    written = io.StringIO()
    csv.writer(written).writerows(
        [("number", "label"), *((f'number {i}\nof "all",', ("even", "odd")[i % 2]) for i in range(300))]
    )
    world.source(written.getvalue(), "train.csv")
    world.spec(
        format="table",
        options={"separator": ",", "quoting": "csv", "header": True},
        files=[{"split": "train", "path": "train.csv"}],
        map={"text": "number", "label": "label"},
        categories={"label": {"even": "even", "odd": "odd"}},
    )
    manifest = world.ingest()
    assert len(manifest.parts) > 3
    assert [(of.records, of.kept, of.rejected) for of in manifest.splits] == [(300, 300, 0)]


def test_a_header_of_two_lines_is_an_error_where_a_file_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text('"m\n",n\n' + "a,b\n" * 9)
    with pytest.raises(
        UserError, match=r"line 1, the header: unexpected end of data; in a large file the header must be"
    ):
        in_parts(path, 8)
