"""Tables in a terminal: names and numbers are complete or absent, and no line exceeds the terminal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pipelines.report.table_layout import layout

NAMES = st.text("abcxyz_019/京", min_size=1, max_size=60)
TEXTS = st.text("ab 京\n\t", max_size=200)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "name": NAMES,
    "number": st.integers(-(10**12), 10**12),
    "share": st.floats(0, 1),
    "text": TEXTS,
}
KINDS = {"name": pa.string(), "number": pa.int64(), "share": pa.float64(), "text": pa.string()}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A column of names, then others of any kind."""
    count = draw(st.integers(1, 4))
    columns = {"corpus": pa.array(draw(st.lists(NAMES, min_size=count, max_size=count)))}
    for place, kind in enumerate(draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=8))):
        values = draw(st.lists(VALUES[kind], min_size=count, max_size=count))
        columns[f"{kind} {place}"] = pa.array(values, KINDS[kind])
    return pa.table(columns)


@given(tables(), st.integers(60, 120))
def test_a_table_fits_and_what_is_cut_is_a_text(rows: pa.Table, width: int) -> None:
    lines, left_out = layout(rows, width)
    everything, nothing = layout(rows, None)
    assert not nothing and len(lines) == len(everything) == len(rows) + 2
    assert max(map(cell_len, lines)) <= width
    shown = [name for name in rows.column_names if name not in left_out]
    assert shown[0] == "corpus" and lines[0].split("  ")[0].strip() == "corpus"
    for line, full, row in zip(lines[2:], everything[2:], rows.to_pylist(), strict=True):
        if cell_len(row["corpus"]) <= width:
            assert line.startswith(row["corpus"])
        assert "…" not in full
        words = line.split()
        for name in shown[1:]:
            if name.startswith(("number", "share")):
                assert f"{row[name]:,}" in words
            if name.startswith("name") and cell_len(row[name]) <= 20:
                assert row[name] in words
        assert all(f"{row[name]:,}" in full for name in rows.column_names if name.startswith(("number", "share")))


MIXTURE = pa.table(
    {
        "source": ["socialiqa_dev/validation", "(all)"],
        "available": [1_953, 585_613],
        "leaks": [0, 168],
        "records": [783, 20_313],
        "draws": [783, 20_313],
        "tokens": [18_315, 4_118_001],
        "share": [0.00445, 1.0],
    }
)


def test_optional_columns_make_room_for_the_others() -> None:
    spare = ["leaks", "available"]
    lines, left_out = layout(MIXTURE, 60, {"share": ".1%"}, spare)
    assert left_out == spare[::-1]
    assert lines[2].split() == ["socialiqa_dev/validation", "783", "783", "18,315", "0.4%"]
    assert layout(MIXTURE, 60, {"share": ".1%"})[1] == ["tokens", "share"]


@pytest.mark.parametrize("width", [20, 200])
def test_a_text_is_one_line_and_ends_in_an_ellipsis_where_it_is_cut(width: int) -> None:
    text = "It rained.\nThen it snowed for a week."
    lines, _ = layout(pa.table({"text": [text]}), width)
    assert lines[2] == ("It rained.␊Then it…" if width == 20 else text.replace("\n", "␊"))


def test_no_rows_are_a_head() -> None:
    assert layout(pa.table({"corpus": pa.array([], pa.string())}), 80) == (["corpus", "──────"], [])


def test_amounts_have_separators_and_keys_have_none() -> None:
    rows = pa.table({"key": pa.array([12392576456119963874], pa.uint64()), "n": [1234567]})
    assert layout(rows, None).lines[-1] == "12392576456119963874  1,234,567"
    assert layout(rows, None, {"key": ","}).lines[-1].startswith("12,392,576")
