"""The specs of questions, with options, answers in a text or answers to generate.

Counts are compared with counts measured by other means.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from test_real_datasets import folder_of, ingested, mismatches_of, records_of

from ubert.schema.record import Record

OPTIONS = {
    # Options of each question; how often the first, the second, ... is right, file by file.
    "aqua_rat": (5, [[69, 66, 43, 50, 26], [63, 58, 46, 53, 34]]),
    "copa": (2, [[181, 187], [55, 45]]),
    "cosmosqa_valid": (4, [[288, 298, 331, 283]]),
    "dream": (3, [[470, 492, 456], [199, 223, 230]]),
    "figqa": (2, [[729, 729], [271, 271], [547, 547], []]),
    "jcommonsenseqa": (5, [[607, 629, 607, 609, 548], [216, 237, 240, 228, 198]]),
    "qasc_dev": (8, [[121, 103, 122, 111, 120, 104, 135, 110]]),
    "qasc_dev_facts": (8, [[121, 103, 122, 111, 120, 104, 135, 110]]),
    "quail_challenge": (4, [[89, 81, 58, 72]]),
}
LABELS = {
    "csqa2": [{"yes": 417, "no": 583}, {"yes": 324, "no": 376}],
    "piqa_valid": [{"first solution": 910, "second solution": 928}],
    "quail_challenge_types": [
        {
            "fact of the story": 39,
            "order of events": 32,
            "duration of an event": 32,
            "what happens afterwards": 33,
            "cause": 32,
            "belief or feeling": 32,
            "identity of a person": 31,
            "property of a person or thing": 33,
            "something that the story does not say": 36,
        }
    ],
    "strategyqa": [{"yes": 158, "no": 192}, {"yes": 107, "no": 122}],
    "strategyqa_facts": [{"yes": 158, "no": 192}, {"yes": 107, "no": 122}],
}
# Different answers of each file. SQuAD's files and QED's repeat those that annotators agree on.
ANSWERS = {
    "covid_qa": [187],
    "friendsqa": [226],
    "friendsqa_utterances": [220],
    "jsquad": [2811],
    "knowref": [695],
    "qed_nq": [607],
    "qed_nq_references": [361],
    "winograd_dpr": [1316, 564],
    "winograd_winobias": [1584],
    "winograd_winogender": [240],
}


def answers(record: Record) -> set[str]:
    return {record.text[span.start : span.end] for span in record.spans}


def lines_of(name: str, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder_of(name) / path).read_text("utf-8").splitlines()]


def squad_answers(path: str, name: str) -> Iterator[set[str]]:
    for document in json.loads((folder_of(name) / path).read_bytes())["data"]:
        for paragraph in document["paragraphs"]:
            for question in paragraph["qas"]:
                yield {answer["text"] for answer in question["answers"]}


@pytest.mark.parametrize("name", OPTIONS)
def test_right_options_of_each_file(name: str) -> None:
    options, counts = OPTIONS[name]
    for taken, expected in zip(ingested(name).values(), counts, strict=True):
        right = Counter(record.labels[0] for record in taken.records)
        assert [right[i] for i in range(options)] == (expected or [0] * options)
        assert {len(record.categories) for record in taken.records} <= {options}


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_each_file(name: str) -> None:
    assert [taken.labels for taken in ingested(name).values()] == LABELS[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_each_file(name: str) -> None:
    assert [taken.spans for taken in ingested(name).values()] == ANSWERS[name]


@pytest.mark.parametrize(("name", "field"), [("dream", "choice"), ("socialiqa_dev", "options")])
def test_an_answer_that_is_named_by_its_words_is_the_right_option(name: str, field: str) -> None:
    if name == "dream":
        parts = [json.loads((folder_of(name) / f"{split}.json").read_bytes()) for split in ("train", "dev")]
        questions = [question for _, questions, _ in chain(*parts) for question in questions]
    else:
        questions = lines_of(name, "dev.jsonl")
    expected = [(q[field], q["answer"]) for q in questions if q[field].count(q["answer"]) == 1]
    found = [([c.name for c in r.categories], r.categories[r.labels[0]].name) for r in records_of(name)]
    assert found == expected


@pytest.mark.parametrize(("name", "path"), [("covid_qa", "200423_covidQA.json"), ("jsquad", "valid-v1.3.json")])
def test_answers_are_the_words_that_the_file_says(name: str, path: str) -> None:
    assert [answers(record) for record in records_of(name)] == [*squad_answers(path, name)]


def test_answers_with_a_blank_before_them_are_found_one_character_earlier() -> None:
    found = mismatches_of("covid_qa")
    assert len(found) == 12
    assert all(m.words and m.words[0] == " " and m.found == (m.start or 0) - 1 for m in found)
    assert max(len(record.text) for record in records_of("covid_qa")) == 44551


def test_answers_of_a_dialogue_are_where_their_offsets_say() -> None:
    """The utterance of an answer, and its words there, which the spec doesn't read."""
    data = json.loads((folder_of("friendsqa") / "friendsqa_dev.json").read_bytes())["data"]
    placed, utterances = {}, []
    for d, document in enumerate(data):
        for p, paragraph in enumerate(document["paragraphs"]):
            lines = [each["utterance"] for each in paragraph["utterances:"]]
            for q, question in enumerate(paragraph["qas"]):
                spans = set()
                for answer in question["answers"]:
                    start = sum(len(line) + 1 for line in lines[: answer["utterance_id"]])
                    before = lines[answer["utterance_id"]].split(" ")[: answer["inner_start"]]
                    start += sum(len(word) + 1 for word in before)
                    spans.add((start, start + len(answer["answer_text"])))
                placed[f"friendsqa/validation/friendsqa_dev.json#data.{d}.paragraphs.{p}.qas.{q}"] = spans
                utterances.append({lines[answer["utterance_id"]] for answer in question["answers"]})
    for record in records_of("friendsqa"):
        assert {(span.start, span.end) for span in record.spans} == placed[record.record_id]
    assert [answers(record) for record in records_of("friendsqa_utterances")] == utterances


def test_the_antecedent_is_the_name_in_words_not_the_one_of_the_number() -> None:
    rows = json.loads((folder_of("knowref") / "knowref_test.json").read_bytes())
    pairs = [(rows[int(record.record_id.partition("#")[2])], record) for record in records_of("knowref")]
    assert all(record.text == row["sentence_with_pronoun"] for row, record in pairs)
    assert all(answers(record) == {*row["correct_candidate"]} for row, record in pairs)
    numbered = ({*row[f"candidate{row['correct_candidate_idx']}"]} == answers(record) for row, record in pairs)
    assert Counter(numbered) == {True: 505, False: 190}


def test_answers_and_references_of_qed() -> None:
    rows = lines_of("qed_nq", "qed-dev.jsonlines")
    expected = [{span["string"] for answer in row["original_nq_answers"] for span in answer} for row in rows]
    assert [answers(record) for record in records_of("qed_nq")] == expected
    pairs = [
        (pair["question_reference"]["string"], {pair["sentence_reference"]["string"]})
        for row in rows
        for pair in row["annotation"]["referential_equalities"]
        if pair["sentence_reference"]["string"]
    ]
    found = [(record.categories[0].name, answers(record)) for record in records_of("qed_nq_references")]
    assert found == pairs


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("winograd_dpr", "train.c.txt"),
        ("winograd_dpr", "test.c.txt"),
        ("winograd_winobias", "winobias_dev.txt"),
        ("winograd_winogender", "WinoGender.txt"),
        ("winograd_wsc273", "wsc273.txt"),
        ("winograd_pdp", "PDP.txt"),
    ],
)
def test_blocks_of_pronouns(name: str, path: str) -> None:
    text = (folder_of(name) / path).read_text("utf-8").strip("\n")
    blocks = [block.split("\n") for block in text.split("\n\n")]
    taken = next(taken for (_, file), taken in ingested(name).items() if file == path)
    if name in ("winograd_wsc273", "winograd_pdp"):
        assert [[r.text, "[MASK]", r.pair, r.target] for r in taken.records] == blocks
        assert all(r.target and r.target.strip() in (r.pair or "") for r in taken.records)
    else:
        found = [[r.text, r.categories[0].name, *answers(r)] for r in taken.records]
        assert found == [[sentence, pronoun, right] for sentence, pronoun, _, right in blocks]


def test_pairs_of_the_larger_train_set_are_not_those_of_the_train_set() -> None:
    train, larger, *_ = (taken.records for taken in ingested("figqa").values())
    seen = {(record.text, *record.labels, *record.categories) for record in train}
    assert not any((record.text, *record.labels, *record.categories) in seen for record in larger)
    rows = [*csv.DictReader((folder_of("figqa") / "train_xl.csv").open(encoding="utf-8", newline=""))]
    assert [row["startphrase"] for row in rows] == [record.text for record in chain(train, larger)]
    assert sum(len({c.name for c in record.categories}) == 1 for record in larger) == 4


@pytest.mark.parametrize(
    ("name", "text", "pair", "target"),
    [
        ("aqua_rat_rationales", "Three birds are flying", "A)32400\nB)6000", "To calculate the equivalent"),
        (
            "jsquad_questions",
            "梅雨 [SEP] 梅雨（つゆ、ばいう）は",
            "小笠原諸島",
            "日本で梅雨がないのは北海道とどこか。",
        ),
        ("qasc_dev_conclusions", "Climate is generally", "Fire behavior", "Climate is generally described"),
    ],
)
def test_the_first_text_to_be_written(name: str, text: str, pair: str, target: str) -> None:
    first = records_of(name)[0]
    assert first.text.startswith(text)
    assert (first.pair or "").startswith(pair) and (first.target or "").startswith(target)


def test_unlabelled_stories_and_texts_of_all_genres() -> None:
    stories = [taken.records for taken in ingested("mctest_stories").values()]
    marks = [sum(len(re.findall(r"\\newline", record.text)) for record in records) for records in stories]
    assert marks == [942, 1011, 161, 407, 288]
    tokens = [record.text.count(" ") + 1 for record in records_of("gum_text")]
    assert tokens == [752, 1038, 1541, 1387, 1039, 1030, 1068, 818, 940, 1215, 1180, 1161, 1211, 1021, 1131]


def test_facts_come_before_the_question() -> None:
    first = records_of("strategyqa_facts")[0]
    assert first.text.split("\n")[:2] == [
        "Julius Caesar had three children.",
        "Genghis Khan had sixteen children.",
    ]
    assert first.pair == "Are more people today related to Genghis Khan than Julius Caesar?"
    assert records_of("strategyqa")[0].text == first.pair
    facts = [record.text.count("\n") + 1 for record in records_of("qasc_dev_facts")]
    assert {*facts} == {2}
