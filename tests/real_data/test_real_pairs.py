"""The specs of inference, paraphrase and similarity data, against counts measured by other means."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from test_real_datasets import COUNTS, SPECS, ingested, records_of

from pipelines.specs import dataset_spec

# Records of each file with each label, in the order of the categories.
TWO_WAY = {
    "add_one_rte": [[459, 1541], [57, 330]],
    "dnc_recast_nli": [[300, 300], [500, 0], [167, 333], [250, 250], [190, 310], [250, 250], [150, 150]],
    "help_nli": [[1000, 1000], [219, 219]],
    "medical_rqe": [[820, 680], [129, 173]],
    "scitail_dev": [[842, 1284]],
    "wnli": [[312, 323], [31, 40]],
}
THREE_WAY = {
    "breaking_nli": [[327, 15, 2158]],
    "commitmentbank": [[104, 11, 103], [23, 5, 28]],
    "fracas": [[169, 82, 25], [34, 28, 8]],
    "jnli": [[349, 1350, 735]],
    "joci": [[825, 1124, 542], [187, 418, 333]],
    "klue_nli": [[333, 333, 334]],
    "mnli_dev": [[1047, 922, 1031]],
    "mpe": [[487, 356, 152], [111, 95, 94]],
    "snli_dev": [[1168, 1165, 1148]],
}
OTHER = {
    "klue_sts_paraphrase": [[220, 299]],
    "qnli_dev": [[750, 750]],
    "tracie": [[430, 430]],
    "wic": [[1493, 1507], [99, 101]],
}


def names_of(name: str) -> list[str]:
    return list(dataset_spec(name, SPECS).categories.label.values())


@pytest.mark.parametrize(("name", "counts"), (TWO_WAY | THREE_WAY | OTHER).items())
def test_labels_of_each_file(name: str, counts: list[list[int]]) -> None:
    labels = names_of(name)
    found = [[taken.labels.get(label, 0) for label in labels] for taken in ingested(name).values()]
    assert found == counts
    assert [sum(of_file) for of_file in found] == COUNTS[name]["records"]


@pytest.mark.parametrize("name", TWO_WAY)
def test_inference_with_two_labels_has_one_pair_of_names(name: str) -> None:
    assert names_of(name) == names_of("rte") == names_of("med")


@pytest.mark.parametrize("name", [name for name in THREE_WAY if dataset_spec(name, SPECS).language == "en"])
def test_inference_with_three_labels_has_one_set_of_names(name: str) -> None:
    assert names_of(name) == names_of("sample_entailment")


@pytest.mark.parametrize(
    ("name", "count", "distinct", "means"), [("jsts", 2, 26, [2.33, 2.29]), ("klue_sts", 1, 51, [2.48])]
)
def test_similarities(name: str, count: int, distinct: int, means: list[float]) -> None:
    values = [[r.value or 0.0 for r in taken.records] for taken in ingested(name).values()]
    assert [(min(of_file), max(of_file)) for of_file in values] == [(0.0, 5.0)] * count
    assert len(set(chain.from_iterable(values))) == distinct
    assert [sum(of_file) / len(of_file) for of_file in values] == pytest.approx(means, abs=0.005)


def test_sentences_of_similarity_3_or_more_mean_the_same() -> None:
    similar = [(r.value or 0.0) >= 3 for r in records_of("klue_sts")]
    assert similar == [r.labels == [0] for r in records_of("klue_sts_paraphrase")]


def test_twins_share_texts() -> None:
    passages = {record.text for name in ("squad2_cs224n", "xquad_en") for record in records_of(name)}
    sentences = [r.text for r in records_of("qnli_dev") if len(r.text) >= 30]
    assert sum(any(sentence in passage for passage in passages) for sentence in sentences) == 329
    inferences = {frozenset((record.text, record.pair)) for record in records_of("jnli")}
    assert sum(frozenset((record.text, record.pair)) in inferences for record in records_of("jsts")) == 153


def test_a_sentence_that_answers_is_the_text_and_its_question_the_pair() -> None:
    record = next(r for r in records_of("qnli_dev") if r.labels == [0])
    assert record.pair == "Which NFL team represented the AFC at Super Bowl 50?"
    assert record.text.startswith("The American Football Conference (AFC) champion Denver Broncos")


def test_hypotheses_that_are_empty_in_the_source() -> None:
    assert [sum(not r.pair for r in taken.records) for taken in ingested("fracas").values()] == [3, 1]


def test_explanations_begin_with_the_decision() -> None:
    first = [
        Counter((r.target or "").split(".")[0] for r in t.records) for t in ingested("flute_explanations").values()
    ]
    assert first == [{"Contradicts": 692, "Entails": 508}, {"Contradicts": 296, "Entails": 203}]
