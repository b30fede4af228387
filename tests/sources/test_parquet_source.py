"""Columnar files: rows in order with their location, classes by number or name, and sentences."""

from __future__ import annotations

import datetime
import decimal
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World

from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.units import plan
from pipelines.sources import RawRow, Slice, reader
from pipelines.sources.parsing.columns import classes
from pipelines.specs import dataset_spec
from ubert.schema.errors import UserError
from ubert.schema.record import Reject

Rows = list[RawRow | Reject]
DATA = Path(os.environ.get("UBERT_DATA", Path(__file__).parents[2] / "../shared/data"))
FEATURES = Features(
    {
        "text": Value("string"),
        "label": ClassLabel(names=["no", "yes"]),
        "tags": List(ClassLabel(names=["O", "B-x"])),
        "more": {"kind": ClassLabel(names=["p", "q"]), "n": Value("int64")},
        "list": List({"kind": ClassLabel(names=["r", "s"])}),
    }
)
CONTENT = [
    {
        "text": "caf\u00e9",
        "label": 1,
        "tags": [0, 1],
        "more": {"kind": 1, "n": 7},
        "list": [{"kind": 0}, {"kind": 1}],
    },
    {"text": "", "label": -1, "tags": [], "more": {"kind": 0, "n": None}, "list": []},
    {"text": None, "label": None, "tags": None, "more": None, "list": None},
]


def read(path: Path, **options: Any) -> Rows:
    form = reader("arrow" if path.suffix == ".arrow" else "parquet")
    size = path.stat().st_size
    return list(form.read(Slice(str(path.parent), path.name, 0, size, 1, "utf-8", "0"), form.Options(**options)))


def contents(rows: Rows) -> list[dict[str, Any]]:
    assert not [row for row in rows if isinstance(row, Reject)]
    return [row.content for row in rows if isinstance(row, RawRow)]


def write_parquet(rows: Dataset, folder: Path) -> Path:
    rows.to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


def write_folder(rows: Dataset, folder: Path) -> Path:
    DatasetDict({"train": rows}).save_to_disk(folder / "disk")
    return folder / "disk" / "train" / "data-00000-of-00001.arrow"


def write_arrow(table: pa.Table, folder: Path) -> Path:
    path = folder / "x.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return path


def write_table(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "x.parquet")
    return folder / "x.parquet"


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture(params=[write_parquet, write_folder])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write: Callable[[Dataset, Path], Path] = request.param
    return write(Dataset.from_list(CONTENT, features=FEATURES), tmp_path)


@pytest.fixture(params=[write_table, write_arrow])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[pa.Table], Path]:
    return lambda table: request.param(table, tmp_path)


def test_rows_come_in_order_with_their_place(saved: Path) -> None:
    rows = read(saved)
    assert contents(rows) == CONTENT
    assert [(row.line, row.locator) for row in rows if isinstance(row, RawRow)] == [
        (n, f"{saved.name}:{n}") for n in (1, 2, 3)
    ]


def test_classes_have_names_where_the_spec_wants_them(saved: Path) -> None:
    assert contents(read(saved, class_names=True)) == [
        {
            "text": "caf\u00e9",
            "label": "yes",
            "tags": ["O", "B-x"],
            "more": {"kind": "q", "n": 7},
            "list": [{"kind": "r"}, {"kind": "s"}],
        },
        {"text": "", "label": None, "tags": [], "more": {"kind": "p", "n": None}, "list": []},
        CONTENT[2],
    ]


def test_columns_are_chosen(saved: Path) -> None:
    assert contents(read(saved, columns=["label", "text"]))[0] == {"label": 1, "text": "caf\u00e9"}
    assert contents(read(saved, columns=["label"], class_names=True))[0] == {"label": "yes"}
    with pytest.raises(
        UserError, match=f"{saved}: 0 columns 'lable', expected one; its columns are text, label, "
    ):
        read(saved, columns=["lable"])
    with pytest.raises(UserError, match="names no classes"):
        read(saved, columns=["text"], class_names=True)


@pytest.mark.parametrize(
    "told",
    [b"", b"{", b"[]", b"1", b'{"info": 1}', b'{"info": {"features": "x"}}', b"[" * 10**6, b'{"features": []}'],
)
def test_a_broken_description_of_classes_names_none(tmp_path: Path, told: bytes) -> None:
    path = write_table(pa.table({"a": [1]}).replace_schema_metadata({b"huggingface": told}), tmp_path)
    assert contents(read(path)) == [{"a": 1}]
    with pytest.raises(UserError, match="names no classes"):
        read(path, class_names=True)


def test_older_ways_to_write_features() -> None:
    old = {
        "a": {"feature": {"b": {"names": ["x"], "_type": "ClassLabel"}}, "_type": "Sequence"},
        "c": [{"_type": "Value"}],
        "d": [{"names": ["y"], "_type": "ClassLabel"}],
    }
    assert list(classes(old)) == [(("a", "[]", "b"), ["x"]), (("d", "[]"), ["y"])]
    assert list(classes(None)) == []


def test_a_list_of_structs_kept_as_a_struct_of_lists(tmp_path: Path) -> None:
    features = {"a": {"feature": {"b": {"names": ["x", "y"], "_type": "ClassLabel"}}, "_type": "Sequence"}}
    table = pa.table({"a": [{"b": [0, 1]}]})
    told = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    path = write_table(table.replace_schema_metadata(told), tmp_path)
    assert contents(read(path, class_names=True)) == [{"a": {"b": ["x", "y"]}}]


def test_many_batches_and_row_groups_are_one_sequence(tmp_path: Path) -> None:
    table = pa.table({"n": range(5000)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=700)
    rows = read(tmp_path / "x.parquet")
    assert [(row.line, row.content["n"]) for row in rows if isinstance(row, RawRow)] == [
        (n + 1, n) for n in range(5000)
    ]


@pytest.mark.parametrize("opened", [pa.ipc.new_file, pa.ipc.new_stream])
def test_large_batches_of_an_arrow_file_are_one_sequence(tmp_path: Path, opened: Callable[..., Any]) -> None:
    table, path = pa.table({"n": range(5000)}), tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as sink, opened(sink, table.schema) as file:
        file.write_table(table, max_chunksize=2300)
    rows = read(path)
    assert [(row.line, row.content["n"]) for row in rows if isinstance(row, RawRow)] == [
        (n + 1, n) for n in range(5000)
    ]


def test_the_names_of_classes_lie_beside_an_arrow_file(tmp_path: Path) -> None:
    form = reader("arrow")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/dataset_info.json").touch()
    named, plain = form.Options(class_names=True), form.Options()
    assert form.companions(tmp_path, "a/x.arrow", named) == ["a/dataset_info.json"]
    assert form.companions(tmp_path, "x.arrow", named) == form.companions(tmp_path, "a/x.arrow", plain) == []


def test_a_number_beyond_the_classes_stays_a_number(tmp_path: Path) -> None:
    features = {"a": {"names": ["x", "y"], "_type": "ClassLabel"}}
    told = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    path = write_table(pa.table({"a": [2, 1, -1, -2]}).replace_schema_metadata(told), tmp_path)
    assert contents(read(path, class_names=True)) == [{"a": 2}, {"a": "y"}, {"a": None}, {"a": -2}]


def test_bytes_are_text_in_the_encoding_of_the_spec(write: Callable[[pa.Table], Path]) -> None:
    path = write(pa.table({"raw": [b"caf\xe9"]}))
    form = reader(path.suffix.removeprefix("."))
    piece = Slice(str(path.parent), path.name, 0, path.stat().st_size, 1, "latin-1", "0")
    assert contents(list(form.read(piece, form.Options()))) == [{"raw": "caf\u00e9"}]


def test_values_that_json_lacks_are_text(write: Callable[[pa.Table], Path]) -> None:
    day = datetime.date(2026, 8, 1)
    table = pa.table(
        {"day": [day], "n": [decimal.Decimal("1.50")], "raw": [b"caf\xc3\xa9"], "deep": [{"day": [day]}]}
    )
    [content] = contents(read(write(table)))
    assert content == {"day": "2026-08-01", "n": "1.50", "raw": "caf\u00e9", "deep": {"day": ["2026-08-01"]}}
    assert json.loads(json.dumps(content)) == content
    [content] = contents(read(write(pa.table({"more": [{"n": 1, "day": day}]}))))
    assert content == {"more": {"n": 1, "day": "2026-08-01"}}


def test_a_dictionary_of_words_is_words(write: Callable[[pa.Table], Path]) -> None:
    table = pa.table({"label": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert [row["label"] for row in contents(read(write(table)))] == ["a", "b", "a"]


def test_a_row_that_is_no_text_is_a_reject_and_the_rest_is_read(write: Callable[[pa.Table], Path]) -> None:
    text = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"caf\xe9", b"c"], pa.binary()).buffers())
    rows = read(write(pa.table({"text": text, "n": [1, 2, 3]})))
    assert [row.content["text"] for row in rows if isinstance(row, RawRow)] == ["a", "c"]
    [reject] = [row for row in rows if isinstance(row, Reject)]
    assert (reject.line, reject.reason) == (2, "cannot be read")
    assert json.loads(reject.raw) == {"text": "caf\\xe9", "n": "2"}


NO_TEXT = [b"a", b"caf\xe9", b"c"]


@pytest.mark.parametrize(
    ("stored", "kind", "shown"),
    [
        (pa.array(NO_TEXT, pa.large_binary()), pa.large_string(), "caf\\xe9"),
        (pa.array([[one] for one in NO_TEXT], pa.list_(pa.binary())), pa.list_(pa.string()), "?"),
        (pa.array([[one] for one in NO_TEXT], pa.large_list(pa.binary())), pa.large_list(pa.string()), "?"),
        (
            pa.array([{"a": one} for one in NO_TEXT], pa.struct([("a", pa.binary())])),
            pa.struct([("a", pa.string())]),
            "?",
        ),
    ],
    ids=["large", "list", "large list", "struct"],
)
def test_bytes_within_a_value_that_are_no_text_refuse_their_row_alone(
    write: Callable[[pa.Table], Path], stored: pa.Array, kind: pa.DataType, shown: str
) -> None:
    rows = read(write(pa.table({"text": stored.view(kind)})))
    assert [(row.line, type(row)) for row in rows] == [(1, RawRow), (2, Reject), (3, RawRow)]
    assert [json.loads(row.raw) for row in rows if isinstance(row, Reject)] == [{"text": shown}]


def test_bytes_that_are_no_text_are_rejects(write: Callable[[pa.Table], Path]) -> None:
    rows = read(write(pa.table({"image": [b"\x89PNG", b"text"], "n": [1, 2]})))
    assert [type(row) for row in rows] == [Reject, RawRow]
    assert contents(read(write(pa.table({"image": [b"\x89PNG"], "n": [1]})), columns=["n"])) == [{"n": 1}]


def test_two_columns_of_one_name_are_an_error(write: Callable[[pa.Table], Path]) -> None:
    path = write(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))
    with pytest.raises(UserError, match="2 columns 'a', expected one"):
        read(path)


def test_a_column_whose_name_is_no_text_gives_one_clear_error(tmp_path: Path) -> None:
    path = write_arrow(pa.table({"a name": [1]}), tmp_path)
    path.write_bytes(path.read_bytes().replace(b"a name", b"a n\xffme"))
    with pytest.raises(UserError, match="not an Arrow file that can be read"):
        read(path)


@settings(max_examples=200)
@given(data=st.data(), kind=st.sampled_from(["parquet", "arrow"]))
def test_a_broken_file_gives_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    table = pa.table({"text": ["a", "b"] * 50, "label": [0, 1] * 50})
    path = write_table(table, folder) if kind == "parquet" else write_arrow(table, folder)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        rows = read(path)
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert [row.line for row in rows] == [*range(1, len(rows) + 1)]


@pytest.mark.parametrize("write", [write_table, write_arrow])
def test_a_cut_file_and_one_of_another_schema_are_rejects(
    write: Callable[[pa.Table, Path], Path], tmp_path: Path
) -> None:
    world = World(tmp_path)
    folder = world.data / "toy"
    folder.mkdir(parents=True)
    good = pa.table({"text": ["one", "two"], "label": [1, 0]})
    others = {"columns": pa.table({"other": [1]}), "types": pa.table({"text": [[1.5]], "label": [{"a": b"\xff"}]})}
    for name, table in {"good": good, "cut": good, "empty": good.schema.empty_table(), **others}.items():
        path = write(table, tmp_path)
        content = path.read_bytes()
        (folder / f"{name}.x").write_bytes(content[:-60] if name == "cut" else content)
    form = "arrow" if write is write_arrow else "parquet"
    world.spec(format=form, files=[{"split": "train", "path": "*.x"}])
    spec = dataset_spec("toy", world.specs)
    units = plan(spec, folder).units
    assert sum(run_unit(unit, spec, world.root) for unit in units) == 5
    kept = [text for unit in units for text in pq.read_table(world.root / unit.part)["text"].to_pylist()]
    rejects = [row for unit in units for row in pq.read_table(world.root / unit.reject_part).to_pylist()]
    assert kept == ["one", "two"]
    assert [row["path"] for row in rejects] == ["columns.x", "cut.x", "types.x"]
    assert all(row["reason"] for row in rejects)


def test_memory_is_that_of_a_batch(tmp_path: Path) -> None:
    """A row group of 64 MB is read without ever holding it."""
    words = "word " * 200
    path = tmp_path / "x.parquet"
    table = pa.table({"text": [f"{n} {words}" for n in range(64_000)]})
    pq.write_table(table, path, row_group_size=64_000, use_dictionary=False, compression="none")
    del table
    before = pa.total_allocated_bytes()
    form, peak = reader("parquet"), 0
    for row in form.read(Slice(str(tmp_path), "x.parquet", 0, 0, 1, "utf-8", "0"), form.Options()):
        if row.line % 1000 == 0:
            peak = max(peak, pa.total_allocated_bytes() - before)
    assert peak < 16 << 20


def test_a_real_dataset_has_the_rows_of_its_other_form() -> None:
    folder = DATA / "rte"
    if not folder.is_dir():
        pytest.skip("no mirror of raw sources with rte (set UBERT_DATA to its folder)")
    form = reader("table")
    lines = (folder / "train.tsv").stat().st_size
    table = form.read(
        Slice(str(folder), "train.tsv", 0, lines, 1, "utf-8", "0"), form.Options(header=True, quoting="csv")
    )
    named = {"0": "entailment", "1": "not_entailment"}
    expected = [{**row.content, "label": named[row.content["label"]]} for row in table if isinstance(row, RawRow)]
    found = contents(read(folder / "train.parquet", class_names=True))
    assert [{key: str(value) for key, value in row.items()} for row in found] == expected
    assert len(found) == 2490


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    ("form", "options", "labels"),
    [
        ("parquet", {}, {"0": "even", "1": "odd"}),
        ("arrow", {"class_names": True}, {"no": "even", "yes": "odd"}),
    ],
)
def test_a_corpus_is_made_of_them(tmp_path: Path, form: str, options: dict[str, Any], labels: Any) -> None:
    """Class numbers are looked up as JSON writes them; class names as they are."""
    world = World(tmp_path)
    folder = world.data / "toy"
    folder.mkdir(parents=True)
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    rows = Dataset.from_list([{"text": f"number {n}", "label": n % 2} for n in range(10)], features=features)
    path = "train.parquet"
    if form == "parquet":
        rows.to_parquet(folder / path)
    else:
        rows.save_to_disk(folder)
        path = "*.arrow"
    world.spec(
        format=form, options=options, files=[{"split": "train", "path": path}], categories={"label": labels}
    )
    world.ingest()
    found = world.records()
    assert [(row["text"], row["labels"]) for row in found] == [(f"number {n}", [n % 2]) for n in range(10)]
