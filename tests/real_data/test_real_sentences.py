"""Real datasets of sentences, pairs, choices and running text, against counts measured in their files."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from test_real_datasets import folder_of, ingested, records_of

from ubert.schema.checks import covered


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (
            "ag_news_test",
            [{"business": 1900, "science and technology": 1900, "sports": 1900, "world": 1900}],
        ),
        (
            "comve_mislabelled_qqp",
            [
                {"the first": 4979, "the second": 5021},
                {"the first": 518, "the second": 479},
                {"the first": 508, "the second": 492},
            ],
        ),
        ("fewclue_bustm", [{"不同": 90, "相同": 70}, {"不同": 82, "相同": 78}, {"不同": 886, "相同": 886}]),
        ("fewclue_eprstmt", [{"负面": 76, "正面": 84}, {"负面": 86, "正面": 74}, {"负面": 305, "正面": 305}]),
        ("fewclue_csl", [{"有伪造": 89, "全部真实": 71}, {"有伪造": 81, "全部真实": 79}]),
        ("med", [{"entailment": 2705, "not entailment": 2677}]),
        (
            "ocnli",
            [
                {"矛盾": 966, "中立": 1054, "蕴含": 974},
                {"矛盾": 900, "中立": 1103, "蕴含": 947},
                {},
            ],
        ),
    ],
)
def test_labels_of_each_file(name: str, labels: list[dict[str, int]]) -> None:
    assert [taken.labels for taken in ingested(name).values()] == labels


def test_topics_of_headlines() -> None:
    train, validation, test = (taken.labels for taken in ingested("fewclue_tnews").values())
    assert (len(train), len(validation), len(test)) == (15, 15, 15)
    assert [train[topic] for topic in ("娱乐", "体育", "教育", "电竞")] == [80] * 4
    assert [validation[topic] for topic in ("农业", "娱乐", "文化", "科技")] == [79, 79, 79, 78]
    assert [test[topic] for topic in ("故事", "娱乐", "财经", "体育")] == [134] * 4


def test_titles_are_parted_from_descriptions_by_a_line_end() -> None:
    texts = [record.text for record in records_of("ag_news_test")]
    assert {text.count("\n") for text in texts} == {1}
    assert sum("\\" in text for text in texts) == 808  # they replace line ends, as published


def test_options_of_choices() -> None:
    def options(name: str) -> list[Counter[int]]:
        return [Counter(len(r.categories) for r in taken.records) for taken in ingested(name).values()]

    assert options("c3_zh") == [{4: 4868 - 1, 3: 988}, {4: 1512, 3: 313}]
    assert options("commonsenseqa_dev") == [{5: 1221}]
    assert options("fewclue_chid") == [{7: 202}, {7: 202}]
    assert options("logiqa_en") == options("logiqa_zh") == [{4: 651}]


def test_right_options_by_place() -> None:
    def places(name: str, split: int = 0) -> list[int]:
        taken = list(ingested(name).values())[split]
        found = Counter(record.labels[0] for record in taken.records)
        return [found[place] for place in range(max(found) + 1)]

    assert places("commonsenseqa_dev") == [239, 255, 241, 251, 235]
    assert places("logiqa_en") == places("logiqa_zh") == [109, 122, 150, 270]
    assert sorted(places("fewclue_chid"))[-3:] == [30, 30, 30]


def test_the_options_of_a_question_of_logic_are_without_their_letters() -> None:
    for name, others in (("logiqa_en", 4), ("logiqa_zh", 0)):  # four have the letter of another option
        names = [category.name for record in records_of(name) for category in record.categories]
        assert sum(bool(re.match(r"[A-D]\.", option)) for option in names) == others
    assert len({len(record.categories) for record in records_of("logiqa_en")}) == 1


def test_options_that_are_the_same_words() -> None:
    same = [
        sum(len({category.name for category in record.categories}) < len(record.categories) for record in records)
        for records in (records_of("c3_zh"), records_of("commonsenseqa_dev"))
    ]
    assert same == [3 + 1 - 1, 24]  # one of c3_zh is refused: the right one is there twice


def test_a_dialogue_has_a_turn_a_line() -> None:
    taken = list(ingested("c3_zh").values())
    dialogues = [len({record.record_id.rsplit(".", 2)[0] for record in part.records}) for part in taken]
    assert dialogues == [4885 - 1, 1628]  # the only question of one dialogue is refused
    assert not any("\r" in record.text for part in taken for record in part.records)


def test_a_pronoun_is_in_the_cluster_of_what_it_refers_to() -> None:
    together = [
        Counter(len({span.group for span in record.spans}) == 1 for record in taken.records)
        for taken in ingested("fewclue_cluewsc").values()
    ]
    assert together == [{True: 82, False: 78}, {True: 80, False: 79}, {True: 488, False: 488}]
    assert all(len(record.spans) == 2 for record in records_of("fewclue_cluewsc"))


def test_the_answers_of_studies() -> None:
    train, test = ingested("pubmedqa").values()
    assert Counter(train.labels) + Counter(test.labels) == {"yes": 339, "no": 189, "maybe": 72}
    truth = json.loads((folder_of("pubmedqa") / "test_ground_truth.json").read_text())
    answers = {r.record_id.partition("#")[2]: r.categories[r.labels[0]].name for r in test.records}
    assert answers == {pmid: truth[pmid] for pmid in answers}
    assert not truth.keys() & {r.record_id.partition("#")[2] for r in train.records}


def test_the_sections_of_an_abstract_are_in_the_split_of_their_study() -> None:
    for whole, parts in zip(ingested("pubmedqa").values(), ingested("pubmedqa_sections").values(), strict=True):
        studies = {record.record_id.partition("#")[2]: record.text for record in whole.records}
        for record in parts.records:
            pmid = record.record_id.partition("#")[2].partition(".")[0]
            assert record.text in studies[pmid].split("\n") or record.text in studies[pmid]


@pytest.mark.parametrize(
    ("name", "labels"),
    [("tweeteval_emotion", 4), ("tweeteval_irony", 2), ("tweeteval_stance_hillary", 3)],
)
def test_tweets(name: str, labels: int) -> None:
    assert [len(taken.labels) for taken in ingested(name).values()] == [labels] * 3


def test_a_domain_is_that_of_its_intents() -> None:
    for domains, intents in zip(ingested("clinc150_domain").values(), ingested("clinc150").values(), strict=True):
        assert len(domains.labels) == 11
        assert domains.labels["out of scope"] == intents.labels["out of scope"]
    file = json.loads((folder_of("clinc150") / "domains.json").read_text())
    train = next(iter(ingested("clinc150_domain").values())).labels
    assert all(train[domain] == 100 * len(file[domain]) for domain in ("banking", "travel", "home"))


@pytest.mark.parametrize("name", ["xquad_en", "xquad_zh"])
def test_translated_questions(name: str) -> None:
    records = records_of(name)
    assert len({record.text for record in records}) == 240
    assert sum(len(record.spans) for record in records) == 1190
    assert max(len(record.text) for record in records) == {"xquad_en": 3326, "xquad_zh": 974}[name]
    assert all(covered(record, span).strip() for record in records for span in record.spans)


@pytest.mark.parametrize("name", ["running_text_wikitext2", "running_text_gutenberg"])
def test_running_text_is_all_there(name: str) -> None:
    """Every word of a file is in one record of it, in order."""
    for (_, path), taken in ingested(name).items():
        whole = (folder_of(name) / path).read_text(encoding="utf-8").split()
        assert [word for record in taken.records for word in record.text.split()] == whole


def test_a_record_is_an_article_or_a_chapter() -> None:
    assert all(re.match(r" = [^=].* = \n", record.text) for record in records_of("running_text_wikitext2"))
    chapters = records_of("running_text_gutenberg")
    assert all(re.match(r"CHAPTER |Chapter \d|Phase the ", record.text) for record in chapters)
    alice = next(record.text for record in chapters if record.text.startswith("CHAPTER I. "))
    assert "tired of sitting by her sister on the bank, and of having" in alice
    verse = next(record.text for record in chapters if "How doth the little" in record.text)
    assert "crocodile\n      Improve" in verse


def test_rows_are_the_same_in_both_formats() -> None:
    def rows(name: str) -> list[tuple[str, str | None, list[int]]]:
        return [(record.text, record.pair, record.labels) for record in records_of(name)]

    assert rows("rte_parquet") == rows("rte")


def test_cells_that_are_quoted_are_read_without_their_quotes() -> None:
    texts = [[record.text for record in taken.records] for taken in ingested("goemotions").values()]
    assert [sum('"' in text for text in part) for part in texts] == [317, 137, 149]
    assert not any('""' in text for part in texts for text in part)
