"""How a draft assigns fields: options and questions, numbers, several labels, tables with line ends."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from drafts import NOUNS, mirror, put, records, sentence, spec_of

from ubert.schema.specs.dataset import DatasetSpec

RNG = random.Random(7)


def drafted(tmp_path: Path, rows: list[dict[str, Any]]) -> DatasetSpec:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return spec_of(tmp_path, put(mirror(tmp_path), "train.jsonl", lines))


def test_what_explains_an_answer_is_no_part_of_the_question(tmp_path: Path) -> None:
    rows = []
    for n in range(60):
        options = [{"label": "AB"[i], "text": noun} for i, noun in enumerate(RNG.sample(NOUNS, 2))]
        asked = f"What did someone leave in the rain on day {n}?"
        question = {"stem": asked, "choices": options}
        shown = f"{asked} (A) {options[0]['text']} (B) {options[1]['text']}?"
        rows.append(
            {
                "fact1": sentence(RNG),
                "combinedfact": sentence(RNG),
                "shown_question": shown,
                "question": question,
                "answerKey": "AB"[n % 2],
            }
        )
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text, spec.map.pair) == ("choice", ["question.stem"], None)


def test_a_question_of_one_word_goes_with_its_premise(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "premise": sentence(RNG),
            "question": ["cause", "effect"][n % 2],
            "choice1": sentence(RNG),
            "choice2": sentence(RNG),
            "label": RNG.randrange(2),
        }
        for n in range(60)
    ]
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text, spec.map.pair) == ("choice", ["premise"], ["question"])


@pytest.mark.parametrize("step", [5, 50])
def test_fractions_are_numbers_however_few_there_are(tmp_path: Path, step: int) -> None:
    rows = [{"text": sentence(RNG), "label": RNG.randrange(step + 1) / step} for _ in range(120)]
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text, spec.map.value) == ("regression", ["text"], "label")


def test_a_number_for_a_word_of_the_text_has_that_word_as_its_pair(tmp_path: Path) -> None:
    rows = []
    for _ in range(80):
        text = sentence(RNG)
        rows.append({"sentence": text, "token": RNG.choice(text.split()), "complexity": RNG.random()})
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text, spec.map.pair) == ("regression", ["sentence"], ["token"])


def test_labels_may_stand_between_commas_and_spaces(tmp_path: Path) -> None:
    lines = [
        f"On day {n} {sentence(RNG)}\t{', '.join(map(str, sorted(RNG.sample(range(8), 1 + n % 3))))}"
        for n in range(200)
    ]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.tsv", "\n".join(lines) + "\n"))
    assert (spec.task, spec.map.label_separator) == ("multilabel", ", ")
    assert set(spec.categories.label) == set(map(str, range(8)))


def test_a_label_may_be_called_null(tmp_path: Path) -> None:
    rows = [{"text": sentence(RNG), "label": ["null", "odd", "even"][n % 3]} for n in range(60)]
    assert {*drafted(tmp_path, rows).categories.label} == {"null", "odd", "even"}


def test_null_in_a_list_of_labels_is_no_label(tmp_path: Path) -> None:
    rows = [
        {"text": sentence(RNG), "labels": [["odd", "even"][n % 2], "new" if n % 9 else None]} for n in range(60)
    ]
    assert {*drafted(tmp_path, rows).categories.label} == {"odd", "even", "new"}


def test_most_rows_of_a_table_may_go_over_several_lines(tmp_path: Path) -> None:
    rows = [f'{["joy", "fear"][n % 2]},"{sentence(RNG)}  \nand then\n{sentence(RNG)}",' for n in range(90)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.csv", "\n".join(rows) + "\n"))
    assert (spec.format, spec.task, set(spec.categories.label)) == ("table", "classification", {"joy", "fear"})


def test_columns_without_blank_lines_are_a_table(tmp_path: Path) -> None:
    rows = [f"{n}\t{sentence(RNG)}\t{['OFF', 'NOT'][n % 2]}\t{['UNT', 'TIN'][n % 3 % 2]}" for n in range(200)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.tsv", "\n".join(rows) + "\n"))
    assert spec.format == "table"


def test_templates_and_tagged_copies_are_no_second_text(tmp_path: Path) -> None:
    rows = []
    for n in range(80):
        text = sentence(RNG)
        tagged = " ".join(f"{word}\\{'B' if word in NOUNS else 'O'}" for word in text.split())
        template = "someone left the [NOUN] in [PLACE] on a rainy day"
        rows.append({"case": text, "tagged": tagged, "case_templ": template, "label": ["good", "bad"][n % 2]})
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text) == ("classification", ["case"])


def test_a_label_for_each_sentence_marks_that_sentence(tmp_path: Path) -> None:
    rows = [
        {
            "sentences": [sentence(RNG) for _ in range(4)],
            "labels": RNG.sample(["aim", "method", "result", "aim"], 4),
        }
        for _ in range(60)
    ]
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.tokens) == ("ner", "sentences")
    assert {*spec.categories.entity} == {"aim", "method", "result"}


def test_phrases_of_a_word_or_two_are_texts(tmp_path: Path) -> None:
    rows = [{"text": f"{RNG.choice(NOUNS)} {n}", "label": RNG.choice(["good", "bad"])} for n in range(120)]
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text, spec.map.label) == ("classification", ["text"], "label")


def test_answers_may_have_places_and_one_list_for_each_reader(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for n in range(60):
        text = f"On day {n} of a long journey, {sentence(RNG)}, and nobody went back for it."
        noun = next(noun for noun in NOUNS if noun in text)
        at = text.index(noun)
        place = {"start": at, "end": at + len(noun), "string": noun}
        rows.append(
            {"question_text": f"What was left on day {n}?", "paragraph": text, "reader_answers": [[place]]}
        )
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text, spec.map.question) == ("qa", ["paragraph"], "question_text")


def test_whether_a_question_has_an_answer_is_no_label(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []
    text = " ".join(f"On day {n}, {sentence(RNG)}." for n in range(60))
    for n in range(60):
        at = text.index(f"On day {n},")
        answers = [] if n % 3 == 0 else [{"text": f"On day {n}", "answer_start": at}]
        asked.append(
            {"question": f"When was it {n}?", "id": str(n), "answers": answers, "is_impossible": n % 3 == 0}
        )
    unanswered = [{"question": one["question"], "id": one["id"]} for one in asked]
    paths = []
    for split, questions in (("train", asked), ("test", unanswered)):
        data = {"data": [{"title": "Days", "paragraphs": [{"context": text, "qas": questions}]}]}
        paths.append(put(mirror(tmp_path), f"{split}.json", json.dumps(data, indent=1)))
    spec = spec_of(tmp_path, *paths)
    assert (spec.task, spec.map.unanswerable) == ("qa", "is_impossible")


def test_squad_of_one_line_with_short_texts_has_questions(tmp_path: Path) -> None:
    paragraphs = []
    for n in range(20):
        noun = RNG.choice(NOUNS)
        asked = {"question": "What was lost?", "id": str(n), "answers": [{"text": noun, "answer_start": 4}]}
        paragraphs.append({"context": f"The {noun} was lost on day {n}.", "qas": [asked]})
    data = {"data": [{"title": "Losses", "paragraphs": paragraphs}]}
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.json", json.dumps(data)))
    assert (spec.format, spec.task, spec.map.text) == ("squad", "qa", ["context"])


def test_several_labels_before_a_text_are_no_part_of_it(tmp_path: Path) -> None:
    marks = ["__label__life", "__label__work", "__label__life __label__work"]
    lines = "".join(f"{marks[n % 3]} {sentence(RNG)}\n" for n in range(60))
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.txt", lines))
    assert (spec.task, spec.options) == ("text", {"record": "line"})


def test_options_may_be_counted_from_one(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": f"{sentence(RNG)}?", "choices": RNG.sample(NOUNS, 3), "answer": 1 + n % 3} for n in range(60)
    ]
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.candidates) == ("choice", {"1": "choices.0", "2": "choices.1", "3": "choices.2"})


def test_a_text_is_not_the_answer_in_itself(tmp_path: Path) -> None:
    rows = []
    for n in range(60):
        sides = {"question": f"Is {sentence(RNG)}?", "long_answer": f"On day {n} {sentence(RNG)} and came back."}
        rows.append({**sides, "decision": ["yes", "no"][n % 2]})
    assert drafted(tmp_path, rows).map.answers is None


@pytest.mark.parametrize("placed", [True, False])
def test_an_answer_may_be_one_of_few_words_of_the_text(tmp_path: Path, placed: bool) -> None:
    rows: list[dict[str, Any]] = []
    for n in range(60):
        text = f"On day {n} of a long journey, {sentence(RNG)}, and nobody went back for it."
        noun = next(noun for noun in NOUNS if noun in text)
        start = {"answer_start": text.index(noun)} if placed else {}
        rows.append({"context": text, "question": f"What was left on day {n}?", "answer": noun, **start})
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.question) == ("qa", "question")
    assert spec.map.answers and spec.map.answers.start == ("answer_start" if placed else None)


def test_labels_of_mentions_are_not_of_the_text(tmp_path: Path) -> None:
    rows = []
    for n in range(60):
        text = sentence(RNG)
        noun = next(noun for noun in NOUNS if noun in text)
        thing = {"offset": text.index(noun), "length": len(noun), "category": "thing"}
        person = {"offset": 0, "length": text.index(" "), "category": "person"}
        rows.append({"text": text, "entities": [thing, person][: 1 + n % 2]})
    assert drafted(tmp_path, rows).task == "text"


def test_a_label_of_a_word_of_the_text_has_that_word_as_its_pair(tmp_path: Path) -> None:
    rows = []
    for n in range(80):
        text = f"{n}: {sentence(RNG)}"
        term = next(noun for noun in NOUNS if noun in text)
        rows.append({"sentence": text, "aspect_term": term, "polarity": ["good", "bad"][n % 2]})
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.text, spec.map.pair) == ("pair", ["sentence"], ["aspect_term"])


def test_a_sign_within_brackets_separates_no_labels(tmp_path: Path) -> None:
    labels = ["made(one,two)", "made(two,one)", "near(one,two)"]
    spec = drafted(tmp_path, [{"text": sentence(RNG), "relation": labels[n % 3]} for n in range(60)])
    assert (spec.task, {*spec.categories.label}) == ("classification", {*labels})


def test_whole_numbers_with_a_point_are_labels(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": f"{n}: {sentence(RNG)}", "stars": float(1 + n % 5), "verified": n % 2 == 0} for n in range(60)
    ]
    spec = drafted(tmp_path, rows)
    assert (spec.task, spec.map.label, len(spec.categories.label)) == ("classification", "stars", 5)


def test_answers_may_have_a_list_of_their_starts(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for n in range(60):
        text = f"{sentence(RNG)}, and {sentence(RNG)} on the next day"
        noun = next(noun for noun in NOUNS if noun in text)
        asked = {"question": f"What was left on day {n}?", "context": text}
        rows.append({**asked, "answers": [noun], "answer_starts": [text.rindex(noun)]})
    spec = drafted(tmp_path, rows)
    assert spec.task == "qa" and spec.map.answers
    assert spec.map.answers.start == "/answer_starts.{answer}"


def test_what_an_annotator_chose_is_the_label_of_the_text(tmp_path: Path) -> None:
    rows = []
    for n in range(60):
        result = {"value": {"choices": [["good", "bad"][n % 2]]}, "from_name": "mood", "type": "choices"}
        rows.append({"id": n, "annotations": [{"result": [result]}], "data": {"text": sentence(RNG)}})
    spec = drafted(tmp_path, rows)
    assert (spec.task, {*spec.categories.label}) == ("classification", {"good", "bad"})


@pytest.mark.parametrize("one", [True, False])
@pytest.mark.parametrize("yes", ["1", "True"])
def test_labels_may_have_a_column_each(tmp_path: Path, one: bool, yes: str) -> None:
    names, flags = ["toxic", "severe_toxic", "insult", "threat"], {"1": "10", "True": ["True", "False"]}[yes]
    rows = []
    for n in range(60):
        said = [n % 4 == i or (not one and n % 3 == i) for i in range(4)]
        rows.append(f'{n},"On day {n} {sentence(RNG)}",' + ",".join(flags[not each] for each in said))
    table = "\n".join([f"id,comment_text,{','.join(names)}", *rows, ""])
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.csv", table))
    assert spec.task == ("classification" if one else "multilabel")
    assert spec.map.label_flags == names
    assert spec.categories.label["severe_toxic"] == "severe toxic"
    made = records(spec, mirror(tmp_path))
    assert len(made) == 60 and sum(len(record.labels) for record in made) == (60 if one else 105)
