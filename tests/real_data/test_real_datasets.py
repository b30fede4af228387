"""The specs of real datasets, compared with counts measured in their files by other means.

In = kept + rejected, file by file; rejected rows are named here with their reason.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice, content_hash, matches, reader
from pipelines.specs import dataset_names, dataset_spec, file_options, specs_folder
from ubert.schema.arrow import batch_to_records, records_to_batch
from ubert.schema.checks import covered
from ubert.schema.record import Mismatch, Misplaced, Record, Reject
from ubert.schema.specs.dataset import DatasetSpec

REPO = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("UBERT_DATA", REPO / "../shared/data"))
SPECS = specs_folder(None)


class Taken(NamedTuple):
    """What became of one file."""

    records: list[Record]
    rejects: list[Reject]
    mismatches: list[Mismatch]

    @property
    def spans(self) -> int:
        return sum(len(record.spans) for record in self.records)

    @property
    def labels(self) -> dict[str, int]:
        """How many records have each label."""
        return dict(Counter(record.categories[label].name for record in self.records for label in record.labels))


def folder_of(name: str) -> Path:
    folder = DATA / dataset_spec(name, SPECS).folder
    if not folder.is_dir():
        pytest.skip(f"no mirror of raw sources with {folder.name} (set UBERT_DATA to its folder)")
    return folder


@cache
def ingested(name: str, compare: str | None = None) -> dict[tuple[str, str], Taken]:
    """Records and rejects of each file, by split and path; `compare`: with other words for it in `offsets`."""
    spec, folder = dataset_spec(name, SPECS), folder_of(name)
    if compare:
        told = spec.model_dump(by_alias=True, exclude_unset=True)
        told["map"]["offsets"]["compare"] = compare
        spec = DatasetSpec.model_validate(told)
    form = reader(spec.format)
    taken: dict[tuple[str, str], Taken] = {}
    for entry in spec.files:
        options = file_options(spec, entry)
        for path in matches(folder, entry.path):
            piece = Slice(str(folder), path, 0, (folder / path).stat().st_size, 1, entry.encoding, "0" * 64)
            mismatches: list[Misplaced] = []
            to_record = mapper(spec, entry.split, mismatches.append)
            rows = [row if isinstance(row, Reject) else to_record(piece, row) for row in form.read(piece, options)]
            taken[entry.split, path] = Taken(
                [row for row in rows if isinstance(row, Record)],
                [row for row in rows if isinstance(row, Reject)],
                [misplaced.mismatch for misplaced in mismatches],
            )
    return taken


def mismatches_of(name: str, compare: str | None = None) -> list[Mismatch]:
    return list(chain.from_iterable(taken.mismatches for taken in ingested(name, compare).values()))


def records_of(name: str) -> list[Record]:
    return list(chain.from_iterable(taken.records for taken in ingested(name).values()))


# What became of every real dataset, by name: counts/*.yaml, a file each test module.
COUNTS: dict[str, dict[str, Any]] = dict(
    chain.from_iterable(
        yaml.safe_load(path.read_text(encoding="utf-8")).items()
        for path in sorted((Path(__file__).parent / "counts").glob("*.yaml"))
    )
)


def test_no_spec_of_a_real_dataset_is_left_out() -> None:
    pinned = {name for name in dataset_names(SPECS) if not name.startswith("sample")}
    assert pinned == COUNTS.keys()


@pytest.mark.parametrize("name", COUNTS)
def test_every_source_record_is_kept_or_rejected_for_a_reason(name: str) -> None:
    of = COUNTS[name].get("of", "file")
    counts: Counter[tuple[str, ...]] = Counter()
    reasons: Counter[str] = Counter()
    for (split, path), taken in ingested(name).items():
        key = {"file": (split, path), "path": (path,), "split": (split,)}[of]
        counts[key] += len(taken.records) + len(taken.rejects)
        reasons.update(reject.reason for reject in taken.rejects)
    assert list(counts.values()) == COUNTS[name]["records"]
    assert reasons == COUNTS[name].get("rejected", {})


@pytest.mark.parametrize("name", COUNTS)
def test_the_files_are_those_that_the_spec_pins(name: str) -> None:
    spec, folder = dataset_spec(name, SPECS), folder_of(name)
    for entry in spec.files:
        paths = matches(folder, entry.path)
        companions = [
            other
            for path in paths
            for other in reader(spec.format).companions(folder, path, file_options(spec, entry))
        ]
        assert content_hash(folder, [*paths, *companions]) == entry.blake3


@pytest.mark.parametrize("name", COUNTS)
def test_record_ids_differ_and_records_survive_arrow(name: str) -> None:
    records = records_of(name)
    assert len({record.record_id for record in records}) == len(records)
    some = records[:: max(1, len(records) // 50)]
    back = list(batch_to_records(records_to_batch(some)))
    if some[0].value is not None:  # kept as float32
        assert [record.value for record in back] == pytest.approx([record.value for record in some])
        back, some = ([*map(repr, (r.text for r in rows))] for rows in (back, some))
    assert back == some


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("wnut17", [1975, 836, 1079]),
        ("mit_movie_trivia", [23030, 5686]),
        ("snips", [4594, 4389, 7349, 3419, 4301, 242, 206, 367, 173, 212]),
    ],
)
def test_entities_of_each_file(name: str, spans: list[int]) -> None:
    assert [taken.spans for taken in ingested(name).values()] == spans


@pytest.mark.parametrize(
    ("name", "tokens"), [("wnut17", [62730, 15733, 23394]), ("mit_movie_trivia", [158823, 39035])]
)
def test_tokens_of_each_file(name: str, tokens: list[int]) -> None:
    """A text is its tokens joined by a space, and no token of these files holds one."""
    found = [sum(record.text.count(" ") + 1 for record in taken.records) for taken in ingested(name).values()]
    assert found == tokens


@pytest.mark.parametrize(("name", "types"), [("wnut17", 6), ("mit_movie_trivia", 12)])
def test_types_of_entities(name: str, types: int) -> None:
    assert len({record.categories[span.category] for record in records_of(name) for span in record.spans}) == types


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (
            "trec",
            [
                dict(description=1162, entity=1250, abbreviation=86, human=1223, number=896, location=835),
                dict(description=138, entity=94, abbreviation=9, human=65, number=113, location=81),
            ],
        ),
        (
            "sst",
            [
                dict(positive=3610, negative=3310),
                dict(positive=444, negative=428),
                dict(positive=909, negative=912),
            ],
        ),
        (
            "rte",
            [{"not entailment": 1241, "entailment": 1249}, {"not entailment": 131, "entailment": 146}],
        ),
    ],
)
def test_labels_of_each_file(name: str, labels: list[dict[str, int]]) -> None:
    assert [taken.labels for taken in ingested(name).values()] == labels


def test_labels_of_fine_grained_sets() -> None:
    fine = [taken.labels for taken in ingested("sst_fine").values()]
    names = ["very negative", "negative", "neutral", "positive", "very positive"]
    assert [[labels[name] for name in names] for labels in fine] == [
        [1092, 2218, 1624, 2322, 1288],
        [139, 289, 229, 279, 165],
        [279, 633, 389, 510, 399],
    ]
    train, test = (taken.labels for taken in ingested("trec_fine").values())
    assert (len(train), len(test)) == (50, 42)
    assert (train["individual"], train["manner"], train["creative work"], test["definition"]) == (
        962,
        276,
        207,
        123,
    )
    intents = [taken.labels for taken in ingested("clinc150").values()]
    assert [len(labels) for labels in intents] == [151, 151, 151]
    assert [labels["out of scope"] for labels in intents] == [100, 100, 1000]


def test_several_labels_of_a_record() -> None:
    per_record = [Counter(len(r.labels) for r in taken.records) for taken in ingested("goemotions").values()]
    assert per_record == [
        {1: 10038, 2: 1799, 3: 154, 4: 8, 5: 1},
        {1: 4548, 2: 809, 3: 62, 4: 7},
        {1: 4590, 2: 774, 3: 61, 4: 2},
    ]
    several = [sum(len(r.labels) > 1 for r in taken.records) for taken in ingested("atis_intent").values()]
    assert several == [23, 3, 15]


def test_slot_types_of_each_file() -> None:
    types = [
        len({record.categories[span.category].name for record in taken.records for span in record.spans})
        for taken in ingested("atis").values()
    ]
    assert types == [79, 67, 69]


def test_a_latin_1_byte_is_read_as_its_letter() -> None:
    record = next(r for r in records_of("trec") if "sister" in r.text and "Los Angeles" in r.text)
    assert "sister\u00f0city" in record.text


def test_rows_with_further_columns_are_kept_and_quotes_are_characters() -> None:
    values = [record.value for record in records_of("stsb")]
    assert (min(values), max(values)) == (0.0, 5.0)
    assert any(record.text.count('"') % 2 for record in records_of("stsb"))


def test_answers_and_unanswerable_questions() -> None:
    records = records_of("squad2_cs224n")
    assert sum(not record.spans for record in records) == 3168
    assert len({(record.split, record.text) for record in records}) == 646
    trained, held_out = ({r.text for r in records if r.split == split} for split in ("train", "validation"))
    assert trained.isdisjoint(held_out)
    assert max(len(record.text) for record in records) == 4063
    # Many of the 10052 answers are the same span, because annotators agree. All distinct ones are here.
    folder, form = folder_of("squad2_cs224n"), reader("squad")
    file = folder / "dev-v2.0.json"
    piece = Slice(str(folder), file.name, 0, file.stat().st_size, 1, "utf-8", "0" * 64)
    rows = [row.content for row in form.read(piece, form.Options()) if isinstance(row, RawRow)]
    assert sum(len(row["answers"]) for row in rows) == 10052
    assert Counter(covered(record, span) for record in records for span in record.spans) == Counter(
        text for row in rows for text, _ in {(answer["text"], answer["answer_start"]) for answer in row["answers"]}
    )


def test_mentions_events_and_what_is_left_out_of_genia() -> None:
    for split, proteins, others, anaphors, events in (
        ("train", 3571, 2436, 105, 2817),
        ("validation", 4138, 2897, 117, 3199),
    ):
        records = [record for record in records_of("bionlp_st_2013_ge") if record.split == split]
        kinds = Counter(r.categories[s.category].name == "protein" for r in records for s in r.spans)
        assert kinds == {True: proteins, False: others - anaphors}
        found = [event for record in records for event in record.events]
        assert len(found) == events
        assert any(argument.event is not None for event in found for argument in event.arguments)


def test_mentions_and_events_of_oil_news() -> None:
    records = records_of("crudeoilnews")
    assert (sum(len(r.spans) for r in records), sum(len(r.events) for r in records)) == (1403, 408)
