"""Real datasets of slots, intents, dialogue, roles of sentences and scores, against counts of their sources."""

from __future__ import annotations

from collections import Counter

import pytest
from test_real_datasets import Taken, ingested, records_of

XSID = ["en", "da", "de", "nl", "it", "tr", "id", "ja"]


def entities(taken: Taken) -> dict[str, int]:
    """How many mentions have each category."""
    return dict(
        Counter(record.categories[span.category or 0].name for record in taken.records for span in record.spans)
    )


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (
            "kpa_2021_stance",
            [
                {"in favour": 472, "against": 460},
                {"in favour": 19, "against": 17},
                {"in favour": 446, "against": 277},
                {"in favour": 17, "against": 16},
            ],
        ),
        (
            "meld",
            [
                dict(neutral=1413, joy=531, surprise=359, anger=330, sadness=173, fear=102, disgust=92),
                dict(neutral=470, joy=163, anger=153, surprise=150, sadness=111, fear=40, disgust=22),
                dict(neutral=706, joy=243, anger=204, surprise=153, sadness=121, disgust=40, fear=33),
            ],
        ),
        (
            "meld_sentiment",
            [
                dict(neutral=1413, negative=874, positive=713),
                dict(neutral=470, negative=406, positive=233),
                dict(neutral=706, negative=477, positive=317),
            ],
        ),
        (
            "mrda_dialogue_acts",
            [
                {
                    "statement": 4834,
                    "disruption": 1229,
                    "backchannel": 871,
                    "question": 568,
                    "taking or holding the floor": 498,
                },
                {
                    "statement": 2415,
                    "disruption": 590,
                    "backchannel": 509,
                    "question": 305,
                    "taking or holding the floor": 181,
                },
            ],
        ),
        (
            "semeval2018_valence_classes",
            [
                {
                    "neutral or mixed": 341,
                    "moderately negative": 249,
                    "slightly positive": 167,
                    "very negative": 129,
                    "very positive": 125,
                    "moderately positive": 92,
                    "slightly negative": 78,
                },
                {
                    "neutral or mixed": 105,
                    "moderately negative": 95,
                    "very negative": 69,
                    "slightly positive": 58,
                    "very positive": 53,
                    "moderately positive": 35,
                    "slightly negative": 34,
                },
            ],
        ),
    ],
)
def test_labels_of_each_file(name: str, labels: list[dict[str, int]]) -> None:
    assert [taken.labels for taken in ingested(name).values()] == labels


def test_intents_of_a_home_assistant() -> None:
    train, validation, test = (taken.labels for taken in ingested("hwu64").values())
    assert (len(train), len(validation), len(test)) == (64, 64, 64)
    assert (train["set alarm"], train["ask for a definition"], train["post on social media"]) == (159, 159, 159)
    assert (train["turn the lights on"], train["change music settings"]) == (33, 65)
    assert validation == test  # the split is stratified
    domains, *_ = (taken.labels for taken in ingested("hwu64_domain").values())
    assert (len(domains), domains["news"], domains["weather"], domains["alarm"]) == (18, 158, 157, 158 + 96 + 159)


def test_dialogue_acts_on_finer_levels() -> None:
    general, _ = (taken.labels for taken in ingested("mrda_dialogue_acts_general").values())
    assert (len(general), general["statement"], general["holding the floor"]) == (12, 5417, 528)
    train, validation = (taken.labels for taken in ingested("mrda_dialogue_acts_full").values())
    assert (len(train), len(validation)) == (50, 50)
    assert (train["statement"], train["acknowledgement"], train["tag question"]) == (2960, 518, 3)
    assert (validation["acceptance"], validation["sympathy"]) == (261, 1)


@pytest.mark.parametrize(("whole", "single"), [("csabstruct", "csabstruct_sentences"), ("meld_dialogues", "meld")])
def test_sentences_in_their_text_have_the_categories_of_single_ones(whole: str, single: str) -> None:
    labels = [taken.labels for taken in ingested(single).values()]
    assert [entities(taken) for taken in ingested(whole).values()] == labels
    texts = [record.text for record in records_of(single)]
    mentions = [record.text[span.start : span.end] for record in records_of(whole) for span in record.spans]
    assert Counter(mentions) == Counter(texts)


def test_roles_of_sentences() -> None:
    assert [entities(taken) for taken in ingested("csabstruct").values()] == [
        dict(method=1022, background=993, result=663, objective=350, other=88),
        dict(background=681, method=624, result=410, objective=244, other=67),
        dict(background=493, method=421, result=219, objective=155, other=61),
    ]


def test_sentiment_of_the_sentences_of_a_review() -> None:
    assert [entities(taken) for taken in ingested("spot_imdb").values()] == [
        dict(positive=390, negative=339, neutral=300)
    ]
    for record in records_of("spot_imdb"):
        assert record.text.split("\n") == [record.text[span.start : span.end] for span in record.spans]


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("mixatis", [3745, 3755]),
        ("mixsnips", [11408, 11476]),
        ("xsid_en", [604, 962]),
        ("xsid_da", [599, 935]),
        ("xsid_de", [607, 968]),
        ("xsid_nl", [603, 962]),
        ("xsid_it", [604, 968]),
        ("xsid_tr", [600, 976]),
        ("xsid_id", [609, 974]),
        ("xsid_ja", [195, 324]),
    ],
)
def test_slots_of_each_file(name: str, spans: list[int]) -> None:
    assert [taken.spans for taken in ingested(name).values()] == spans


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("mixatis", [62, 59]),
        ("mixsnips", [38, 38]),  # of 39: a point of interest has two labels
        ("xsid_en", [33, 34]),
        ("xsid_tr", [34, 35]),
        ("xsid_ja", [6, 6]),
    ],
)
def test_types_of_slots(name: str, types: list[int]) -> None:
    assert [len(entities(taken)) for taken in ingested(name).values()] == types


@pytest.mark.parametrize("language", XSID)
def test_intents_are_the_same_in_all_languages(language: str) -> None:
    """The requests of a language are translations, so the n-th most frequent intent is as frequent in each."""
    for taken, english in zip(
        ingested(f"xsid_{language}_intent").values(), ingested("xsid_en_intent").values(), strict=True
    ):
        if language == "ja":
            assert (len(taken.labels), sum(taken.labels.values())) == (9, len(taken.records))
        else:
            assert sorted(taken.labels.values()) == sorted(english.labels.values())
            assert len(taken.labels) == 15


def test_japanese_is_written_without_spaces() -> None:
    assert not any(" " in record.text for record in records_of("xsid_ja"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("complex_lcp", [(0, 0.825, 0.286), (0.028, 0.975, 0.418), (0, 0.875, 0.299), (0, 0.825, 0.418)]),
        ("semeval2018_valence", [(0.017, 0.968, 0.501), (0.032, 0.981, 0.485)]),
    ],
)
def test_values_of_each_file(name: str, told: list[tuple[float, float, float]]) -> None:
    """The lowest, the highest and the mean, to three places."""
    for taken, expected in zip(ingested(name).values(), told, strict=True):
        values = [record.value for record in taken.records if record.value is not None]
        found = (min(values), max(values), sum(values) / len(values))
        assert tuple(round(value, 3) for value in found) == pytest.approx(expected)


def test_a_hard_word_is_in_its_sentence() -> None:
    assert all(
        record.pair and record.pair.casefold() in record.text.casefold() for record in records_of("complex_lcp")
    )
