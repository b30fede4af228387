"""The numbers of the report are those of the records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from worlds import corpus, put_corpus

from pipelines.report.numbers import TOP, numbers, records
from pipelines.report.pictures import bars, histogram, ranges
from pipelines.store.warehouse import connect
from ubert.schema.record import Argument, Category, Event, Record, Relation, Span

Numbers = dict[str, list[dict[str, Any]]]


def texts(name: str, lengths: list[int], **changes: Any) -> list[Record]:
    return [
        replace(record, text=chr(97 + i % 26) * n, **changes)
        for i, (n, record) in enumerate(zip(lengths, corpus(name, len(lengths)), strict=True))
    ]


def tagged() -> Iterator[Record]:
    """Categories c0 … c19, of which number i is used i + 1 times."""
    categories = tuple(Category(f"c{i:02}", "entity") for i in range(20))
    for i, record in enumerate(corpus("tagged", 20)):
        spans = [Span(0, 4, i)] * (i + 1)
        yield replace(record, task="ner", text="abcd" * 5, categories=categories, labels=[], spans=spans)


def told() -> Record:
    categories = tuple(Category(n, "event") for n in ("happens", "agent", "causes"))
    events = [Event(0, 0, [Argument(1, span=1), Argument(1, event=1)]), Event(0)]
    [record] = corpus("told", 1)
    return replace(
        record, task="event", categories=categories, labels=[], spans=[Span(0, 1, 0), Span(1, 2, 0)],
        events=events, relations=[Relation(0, 1, 2)],
    )  # fmt: skip


def asked() -> Iterator[Record]:
    for i, record in enumerate(corpus("asked", 5)):
        question = (Category(f"Is {i} even?", "question"),)
        yield replace(record, task="qa", categories=question, labels=[], spans=[Span(0, 2, 0)] * (i % 2))


def chosen() -> Iterator[Record]:
    for i, record in enumerate(corpus("chosen", 6)):
        yield replace(
            record, task="choice", categories=tuple(Category(f"{i}{j}", "label") for j in range(3)), labels=[i % 3]
        )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("numbers")
    put_corpus(root, "lengths", texts("lengths", [*range(1, 101), 5000]), rejected=[("train", "odd")] * 3)
    put_corpus(root, "rated", texts("rated", [5] * 11, task="regression"))
    put_corpus(root, "tagged", list(tagged()))
    put_corpus(root, "told", [told()])
    put_corpus(root, "asked", list(asked()))
    put_corpus(root, "chosen", list(chosen()))
    put_corpus(
        root, "copy", [replace(r, corpus="copy") for r in [*corpus("copy", 4), *corpus("copy2", 2, "test")]]
    )
    return root


@pytest.fixture(scope="module")
def found(root: Path) -> Numbers:
    with connect(root) as connection:
        return numbers(connection)


def of(found: Numbers, what: str, **equal: Any) -> list[dict[str, Any]]:
    return [row for row in found[what] if all(row[column] == value for column, value in equal.items())]


def test_quantiles_are_those_of_the_values_and_bins_hold_all_of_them(found: Numbers) -> None:
    [row] = of(found, "measures", corpus="lengths", measure="characters")
    assert (row["items"], row["total"], row["least"], row["most"]) == (101, 10_050, 1, 5000)
    values = [*range(1, 101), 5000]
    assert (row["p5"], row["median"], row["p95"]) == (6, 51, 96)
    assert row["median"] == quantiles(values, n=2, method="inclusive")[0]
    assert sum(each["times"] for each in row["bins"]) == 101
    assert row["bins"][-1] == {"bin": row["p99"] // row["width"] + 1, "times": 1}


def test_measures_count_what_records_hold(found: Numbers) -> None:
    [spans] = of(found, "measures", corpus="tagged", measure="spans")
    assert (spans["total"], spans["positive"], spans["median"]) == (210, 20, 10)
    [density] = of(found, "measures", corpus="tagged", measure="density")
    assert (density["least"], density["most"]) == (500, 10_000)  # 1 and 20 mentions in 20 characters
    [length] = of(found, "span lengths", corpus="tagged")
    assert (length["items"], length["least"], length["most"]) == (210, 4, 4)
    assert [of(found, "measures", corpus="told", measure=m)[0]["total"] for m in ("relations", "events")] == [1, 2]


def test_the_commonest_categories_have_their_names_and_the_tail_is_summed(found: Numbers) -> None:
    rows = of(found, "categories", corpus="tagged")
    assert [(row["name"], row["times"]) for row in rows[:2]] == [("c19", 20), ("c18", 19)]
    assert len(rows) == TOP + 1
    assert (rows[-1]["name"], rows[-1]["members"], rows[-1]["times"]) == (None, 8, sum(range(1, 9)))


def test_categories_are_counted_by_what_they_are_used_for(found: Numbers) -> None:
    used = {(row["kind"], row["name"]): row["times"] for row in of(found, "categories", corpus="told")}
    assert used == {
        ("span", "happens"): 2, ("event", "happens"): 2, ("role", "agent"): 2, ("relation", "causes"): 1,
    }  # fmt: skip


def test_questions_and_options_are_counted_by_answer(found: Numbers) -> None:
    def answers(name: str) -> list[tuple[str, str, int]]:
        return [(row["kind"], row["name"], row["times"]) for row in of(found, "categories", corpus=name)]

    assert answers("asked") == [("answer", "none", 3), ("answer", "in the text", 2)]
    assert answers("chosen") == [("answer", f"option {i}", 2) for i in (1, 2, 3)]


def test_counts_by_task_split_language_and_licence_add_up(found: Numbers) -> None:
    kept = sum(row["kept"] for row in found["corpora"])
    for aspect in ("task", "split", "language", "licence", "class"):
        assert sum(row["kept"] for row in of(found, "groups", aspect=aspect)) == kept
        assert sum(row["rejected"] for row in of(found, "groups", aspect=aspect)) == 3


def test_rejects_have_their_first_place(found: Numbers) -> None:
    [row] = found["rejects"]
    assert (row["times"], row["first"]) == (3, {"path": "source", "line": 1, "detail": "a detail"})


def test_records_that_repeat_others_are_counted_once_each(found: Numbers) -> None:
    """`number 0` … stand in several corpora; the first by name keeps, whatever is in it twice is counted there."""
    rows = [(r["corpus"], r["split"], r["other_corpus"], r["times"]) for r in found["matches"]]
    assert sorted(rows) == [
        ("chosen", "train", "asked", 5),
        ("copy", "test", "asked", 2),
        ("copy", "train", "asked", 4),
        ("rated", "train", "lengths", 1),
        ("tagged", "train", "tagged", 19),
        ("told", "train", "asked", 1),
    ]


def test_records_are_the_first_by_key_of_those_with_annotations(root: Path) -> None:
    with connect(root) as connection:
        drawn = records(connection, 3)
        keys = {
            name: [row[0] for row in connection.execute(
                f"SELECT record_id FROM records WHERE corpus = '{name}' ORDER BY len(spans) = 0, key"
            ).fetchmany(3)]
            for name in ("asked", "tagged")
        }  # fmt: skip
    assert {name: len(some) for name, some in drawn.items()}["told"] == 1
    assert all({record.record_id for record in drawn[name]} == set(keys[name]) for name in keys)


def test_pictures_are_xml_that_names_nothing_outside_and_are_the_same_each_time() -> None:
    names = ["<b>", "$a^{b", "人 \u202e\x00", "x" * 99]

    def pictures() -> list[str]:
        return [
            bars(names, {"kept": [1, 2, 900, 0], "rejected": [0, 0, 0, 1]}),
            bars(names, {"times": [5, 4, 3, 2, 1]}, tail="9 more"),
            bars(["nothing"], {"times": [0]}),
            histogram([1, 0, 1_000_000], [0, 10, 20, 30]),
            ranges(names[:2], [[1, 2, 3, 4, 5], [10, 10, 10, 10, 10]]),
            ranges(["less than a decade"], [[28, 33, 40, 45, 52]]),
        ]

    made = pictures()
    assert made == pictures()
    for picture in made:
        ElementTree.fromstring(picture.replace("xlink:href", "href"))
        assert not re.search(r"http|url\(|<style|<script|mathdefault", picture)
    assert "&lt;b&gt;" in made[0] and "$a^{b" in made[0] and "人 [U+202E]␀" in made[0]
    assert "9 more" in made[1]
