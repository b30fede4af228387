"""The specs of real datasets, against counts measured in their files by other means than ours.

In = kept + rejected, file by file; what is rejected is named here with its reason.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from pipelines.mapping.mapper import mapper
from pipelines.sources import RawRow, Slice, content_hash, matches, reader
from pipelines.specs import dataset_names, dataset_spec, file_options, specs_folder
from ubert.schema.arrow import batch_to_records, records_to_batch
from ubert.schema.checks import covered
from ubert.schema.record import Mismatch, Misplaced, Record, Reject
from ubert.schema.spec import DatasetSpec

REPO = Path(__file__).resolve().parents[1]
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


# Every spec of a real dataset, with its number of source records in each file (documents: in each split).
SOURCE_RECORDS = {
    "ade_corpus": [4272],
    "ade_corpus_dose": [213],
    "ade_corpus_sentences": [4272, 3000],
    "ag_news_test": [7600],
    "ag_news_titles": [6600, 1000],
    "aste_14lap": [906, 219, 328],
    "aste_14res": [1266, 310, 492],
    "atis": [4478, 500, 893],
    "atis_intent": [4478, 500, 893],
    "bc5cdr": [3942, 4139],
    "bionlp_st_2013_cg": [300, 100],
    "bionlp_st_2013_cg_ner": [300, 100],
    "bionlp_st_2013_ge": [222, 249],
    "bionlp_st_2013_ge_coref": [222, 249],
    "bionlp_st_2013_ge_json": [60],
    "bionlp_st_2013_ge_ner": [222, 249],
    "c3_zh": [5856, 1825],
    "casie": [350],
    "casie_coref": [350],
    "casie_triggers": [350],
    "clinc150": [15000 + 100, 3000 + 100, 4500 + 1000],
    "clinc150_domain": [15000 + 100, 3000 + 100, 4500 + 1000],
    "cluener": [5000, 1343],
    "cmrc2018": [1228],
    "cmrc2018_trial": [1002],
    "commonsenseqa_dev": [1221],
    "comve_mislabelled_qqp": [10000, 997, 1000],
    "crudeoilnews": [151],
    "crudeoilnews_augmented": [80],
    "duee": [1498],
    "duee_fin": [450],
    "duee_fin_titles": [450],
    "fewclue_bustm": [160, 160, 1772],
    "fewclue_chid": [202, 202],
    "fewclue_cluewsc": [160, 159, 976],
    "fewclue_csl": [160, 160],
    "fewclue_eprstmt": [160, 160, 610],
    "fewclue_tnews": [1185, 1098, 2010],
    "fewrel": [11200],
    "format_examples_gliner_ner": [64],
    "format_examples_instructkgc_event": [6],
    "format_examples_instructkgc_ner": [6],
    "format_examples_instructkgc_ner_instructions": [6],
    "format_examples_instructkgc_relation": [6],
    "format_examples_instructkgc_spo": [5],
    "format_examples_ubert_choice": [1, 1],
    "format_examples_ubert_classification": [1],
    "format_examples_ubert_ner": [1, 1],
    "format_examples_ubert_qa": [3],
    "format_examples_uie_ner": [1],
    "gap_coref": [2000, 454],
    "genia_event_xml": [100],
    "genia_event_xml_ner": [100],
    "genia_nested": [1669, 1854],
    "genia_nested_pipe": [48, 94, 55],
    "germeval2014": [2200, 5100],
    "germeval2014_outer": [2200, 5100],
    "goemotions": [12000, 5426, 5427],
    "goemotions_sentiment": [12000, 5426, 5427],
    "litbank": [10],
    "litbank_coref": [10],
    "litbank_events": [869],
    "litbank_links": [10],
    "litbank_sentences": [869],
    "logiqa_en": [651],
    "logiqa_zh": [651],
    "mams_absa": [4297, 500, 500],
    "mams_absa_categories": [400, 400],
    "mams_absa_polarity": [888, 901],
    "mams_absa_terms": [4297, 500, 500],
    "med": [5382],
    "mit_movie_trivia": [7816, 1953],
    "ocnli": [3000, 3000, 3000],
    "pubmedqa": [600 - 291, 291],
    "pubmedqa_answers": [600 - 291, 291],
    "pubmedqa_sections": [1044, 987],
    "redocred": [250],
    "redocred_coref": [250],
    "redocred_ner": [250],
    "restaurant8k": [2049, 3731],
    "resume_ner_zh": [3821, 463, 477],
    "rte": [2490, 277],
    "rte_parquet": [2490, 277],
    "running_text_gutenberg": [7, 12, 61, 27],
    "running_text_wikitext2": [60, 60],
    "scierc": [350, 50, 100],
    "scierc_coref": [350, 50, 100],
    "scierc_relation": [350, 50, 100],
    "scierc_spert": [1861, 275, 551],
    "semeval2010_task8": [8000, 2717],
    "semeval2010_task8_labels": [8000, 2717],
    "semeval2014_absa_laptops": [3045],
    "semeval2014_absa_laptops_terms": [3045, 800],
    "semeval2014_absa_restaurants": [3041],
    "semeval2014_absa_restaurants_categories": [3041, 800],
    "semeval2014_absa_restaurants_polarity": [597 + 1232 + 1132 + 321 + 431],
    "semeval2014_absa_restaurants_terms": [3041, 800],
    "snips": [2000, 2000, 1956, 1954, 1959, 100, 100, 100, 100, 100],
    "snips_intent": [2000, 2000, 1956, 1954, 1959, 100, 100, 100, 100, 100],
    "squad2_cs224n": [6078, 5915],
    "squad2_plausible_questions": [6078, 5915],
    "squad2_questions": [6078, 5915],
    "sst": [6920, 872, 1821],
    "sst_fine": [8544, 1101, 2210],
    "stsb": [5749, 1500, 1379],
    "trec": [5452, 500],
    "trec_fine": [5452, 500],
    "tweeteval_emotion": [3257, 374, 1421],
    "tweeteval_irony": [2862, 955, 784],
    "tweeteval_stance_abortion": [587, 66, 280],
    "tweeteval_stance_atheism": [461, 52, 220],
    "tweeteval_stance_climate": [355, 40, 169],
    "tweeteval_stance_feminist": [597, 67, 285],
    "tweeteval_stance_hillary": [620, 69, 295],
    "webnlg_re": [2500, 500, 703],
    "wikievents": [20, 20],
    "wikievents_coref": [20, 20],
    "wikievents_ner": [20, 20],
    "wnut17": [3394, 1009, 1287],
    "xquad_en": [1190],
    "xquad_en_questions": [1190],
    "xquad_zh": [1190],
    "xquad_zh_questions": [1190],
}
REJECTED = {
    "c3_zh": {"ambiguous label": 1},
    "casie": {"mention isn't in the text": 1},
    "casie_coref": {"mention isn't in the text": 1},
    "cmrc2018": {"mention isn't in the text": 97},
    "cmrc2018_trial": {
        "mention is in the text more than once": 76,
        "empty question": 2,
        "mention isn't in the text": 1,
    },
    "crudeoilnews": {"no text file": 138},
    "crudeoilnews_augmented": {"mention doesn't match its offsets": 9},
    "format_examples_ubert_ner": {"not JSON": 1},
    "genia_event_xml": {"dangling event": 1},
    "germeval2014": {"wrong column count": 1},
    "ocnli": {"unknown category": 6 + 50, "missing field": 3000},
    "pubmedqa_sections": {"unknown category": 3},
    "redocred": {"mention doesn't match its offsets": 2},
    "redocred_coref": {"mention doesn't match its offsets": 2},
    "redocred_ner": {"mention doesn't match its offsets": 2},
    "resume_ner_zh": {"tags out of order": 4},
    "squad2_cs224n": {"no answer": 5915},
    "casie_triggers": {"mention isn't in the text": 1},
    "germeval2014_outer": {"wrong column count": 1},
    "squad2_plausible_questions": {"missing field": 2910 + 5915},
    "squad2_questions": {"missing field": 3168 + 5915},
}


def test_no_spec_of_a_real_dataset_is_left_out() -> None:
    pinned = {name for name in dataset_names(SPECS) if not name.startswith("sample")}
    assert pinned == SOURCE_RECORDS.keys()


@pytest.mark.parametrize("name", SOURCE_RECORDS)
def test_every_source_record_is_kept_or_rejected_for_a_reason(name: str) -> None:
    spec = dataset_spec(name, SPECS)
    by_file: Counter[tuple[str, str]] = Counter()
    reasons: Counter[str] = Counter()
    for (split, path), taken in ingested(name).items():
        # A folder of documents counts as one; so does the one file that squad2_cs224n parts into two splits.
        document = spec.format == "brat" or name.startswith(
            ("bionlp", "casie", "crudeoilnews", "genia_event", "litbank")
        )
        key = (split, "documents") if document else ("", path) if name.startswith("squad2") else (split, path)
        by_file[key] += len(taken.records) + len(taken.rejects)
        reasons.update(reject.reason for reject in taken.rejects)
    assert list(by_file.values()) == SOURCE_RECORDS[name]
    assert reasons == REJECTED.get(name, {})


@pytest.mark.parametrize("name", SOURCE_RECORDS)
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


@pytest.mark.parametrize("name", SOURCE_RECORDS)
def test_record_ids_differ_and_records_survive_arrow(name: str) -> None:
    records = records_of(name)
    assert len({record.record_id for record in records}) == len(records)
    some = records[:: max(1, len(records) // 50)]
    back = list(batch_to_records(records_to_batch(some)))
    if name == "stsb":  # values are kept as float32
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
    # Of 10052 answers many are the same span: annotators agree. All differing ones are here.
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
