"""Datasets of topics, places, questions and reviews, against counts of their sources (counts/topics.yaml)."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from test_real_datasets import COUNTS, REPO, SPECS, folder_of, ingested, records_of
from yaml import safe_load

from pipelines.specs import dataset_spec

COUNTED = [
    name
    for name in safe_load((REPO / "tests/real_data/counts/topics.yaml").read_text())
    if "categories" in COUNTS[name]
]


def names_of(name: str) -> dict[str, str]:
    """The natural names of the source's labels, or of its types of mentions."""
    categories = dataset_spec(name, SPECS).categories
    return categories.label or categories.entity


@pytest.mark.parametrize("name", COUNTED)
def test_labels_and_mentions_of_each_file(name: str) -> None:
    names, refused, expected = names_of(name), COUNTS[name].get("refused"), COUNTS[name]["categories"]
    found = []
    for taken in ingested(name).values():
        of_file = Counter(taken.labels)
        of_file.update(r.categories[span.category or 0].name for r in taken.records for span in r.spans)
        if refused:
            of_file.update(names[label] for r in taken.rejects for label in re.findall(refused, r.raw))
        found.append(of_file)
    if isinstance(expected, dict):
        found, expected = [sum(found, Counter())], [expected]
    assert found == [{names[label]: count for label, count in of_file.items()} for of_file in expected]


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("harveyner", [79574, 26110, 26183]),
        ("hipe2022_ajmc", [30932, 6506, 6052]),
        ("music_reco_ner", [5529, 5591, 5731, 6961]),
    ],
)
def test_tokens_of_each_file(name: str, tokens: list[int]) -> None:
    found = [sum(record.text.count(" ") + 1 for record in taken.records) for taken in ingested(name).values()]
    assert found == tokens


@pytest.mark.parametrize(
    ("corpus", "file"), [("ubuntu", "AskUbuntu"), ("chatbot", "Chatbot"), ("web", "WebApplications")]
)
def test_the_source_says_which_questions_are_for_training(corpus: str, file: str) -> None:
    name = f"nlu_eval_corpora_{corpus}"
    told = json.loads((folder_of(name) / f"{file}Corpus.json").read_text(encoding="utf-8"))["sentences"]
    for split, training in (("train", True), ("test", False)):
        texts = [record.text for record in records_of(name) if record.split == split]
        assert texts == [sentence["text"] for sentence in told if sentence["training"] is training]


def test_topics_of_news() -> None:
    [taken] = ingested("reuters_r52_test").values()
    labels = taken.labels
    assert (len(labels), labels["crude oil"], labels["currency exchange"], labels["coffee"]) == (52, 121, 87, 22)
    assert (labels["company earnings"], labels["mergers and acquisitions"], labels["jet fuel"]) == (100, 100, 1)
    assert names_of("reuters_r8").items() <= names_of("reuters_r52_test").items()
    texts = {record.text for record in records_of("reuters_r8")}
    assert sum(record.text in texts for record in taken.records) == 293


def test_a_mail_has_the_label_of_its_folder_and_all_its_lines() -> None:
    folder, names = folder_of("newsgroups20_tree"), names_of("newsgroups20_tree")
    for (split, path), taken in ingested("newsgroups20_tree").items():
        [record] = taken.records
        part, group, _ = path.split("/")
        assert (part, record.categories[record.labels[0]].name) == (f"20news-bydate-{split}", names[group])
        mail = (folder / path).read_text(encoding="cp1252" if group == "alt.atheism" else "utf-8")
        assert record.text.rstrip() == mail.rstrip()


def test_ratings_of_queries() -> None:
    files = [[r.value or 0.0 for r in taken.records] for taken in ingested("query_wellformedness").values()]
    assert [(min(values), max(values), len(set(values))) for values in files] == [(0, 1, 11)] * 3
    assert [round(sum(values) / len(values), 3) for values in files] == [0.514, 0.511, 0.503]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("acos", r"(.*?)\t-?\d+,-?\d+ .*"),
        ("e2e_tbsa", r"([^#]*)####[^#]*"),
        ("towe", r"(?!s_id\t)[^\t]+\t([^\t]*)\t[^\t]*\t[^\t]*"),
    ],
)
def test_sentences_are_taken_without_their_metadata(name: str, line: str) -> None:
    for (_, path), taken in ingested(name).items():
        lines = (folder_of(name) / path).read_text(encoding="utf-8").split("\n")
        found = [match[1] for each in lines if (match := re.fullmatch(line, each))]
        assert [record.text for record in taken.records] == [*(dict.fromkeys(found) if name == "towe" else found)]
