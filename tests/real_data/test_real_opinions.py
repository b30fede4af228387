"""The specs of sentiment, emotion, abuse and argument data, against counts measured by other means."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from test_real_datasets import folder_of, ingested, records_of

from pipelines.specs import dataset_spec, specs_folder

SPECS = specs_folder(None)

# Records of each file with each label, in the order of the categories.
LABELS = {
    "blimp_errors": [[250 * (i == j) for j in range(6)] for i in range(6)],
    "cr_reviews": [[1366, 0], [0, 2405]],
    "germeval2018_offensive": [[1688, 3321], [1202, 2330]],
    "germeval2018_offensive_fine": [[1022, 595, 71, 3321], [773, 381, 48, 2330]],
    "hate_davidson": [[716, 6716, 1568]],
    "hatecheck": [[2563, 1165]],
    "hatecheck_direction": [[1618, 945, 1165]],
    "hatecheck_target": [[509, 463, 551, 482, 484, 484, 463, 292]],
    "isear": [[576, 565, 578, 570, 580, 573, 558]],
    "liar": [[679, 778, 782, 612, 810, 339], [169, 251, 248, 237, 263, 116], [211, 249, 267, 214, 250, 92]],
    "mpqa_polarity": [[7292, 0], [0, 3311]],
    "mr_polarity": [[5331, 0], [0, 5331]],
    "olid": [[2662, 5338], [0, 0]],
    "olid_target": [[1473, 649, 243, 5635], [0, 0, 0, 0]],
    "olid_type": [[2365, 297, 5338], [0, 0, 0]],
    "perspectrum_topics": [[54, 11, 45, 38, 21, 42, 19, 12, 22, 41, 63, 31, 104, 13, 31, 100, 18, 82]],
    "semeval_twitter_sentiment": [[1404, 640, 1956], [1038, 365, 987], [33, 40, 13]],
    "sms_spam": [[747, 4827]],
    "xed_emotion": [[3828, 3400, 2317, 2439, 2833, 2464, 2442, 2699]],
}
# Tweets of the train and validation file that have an emotion.
EMOTIONS = {
    "anger": [1295, 315],
    "anticipation": [509, 124],
    "disgust": [1301, 319],
    "fear": [605, 121],
    "joy": [1247, 400],
    "love": [360, 132],
    "optimism": [995, 307],
    "pessimism": [419, 100],
    "sadness": [1038, 265],
    "surprise": [184, 35],
    "trust": [177, 43],
}


@pytest.mark.parametrize(("name", "counts"), LABELS.items())
def test_labels_of_each_file(name: str, counts: list[list[int]]) -> None:
    names = list(dataset_spec(name, SPECS).categories.label.values())
    found = [[taken.labels.get(label, 0) for label in names] for taken in ingested(name).values()]
    assert found == counts


@pytest.mark.parametrize(("emotion", "counts"), EMOTIONS.items())
def test_tweets_with_an_emotion(emotion: str, counts: list[int]) -> None:
    files = list(ingested(f"semeval2018_emotion_{emotion}").values())
    assert [taken.labels[emotion] for taken in files] == counts
    assert [taken.labels[f"no {emotion}"] for taken in files] == [3500 - counts[0], 886 - counts[1]]


def test_tweets_with_all_their_emotions() -> None:
    """Each of eleven other specs reads its own column of the same row."""
    together = records_of("semeval2018_emotions")
    columns = [records_of(f"semeval2018_emotion_{emotion}") for emotion in EMOTIONS]
    for record, *row in zip(together, *columns, strict=True):
        names = {record.categories[label].name for label in record.labels}
        assert names == {emotion for emotion, one in zip(EMOTIONS, row, strict=True) if one.labels == [0]}
    none = Counter(record.split for record in together if not record.labels)
    assert none == {"train": 108, "validation": 14}


def test_kinds_of_hateful_and_harmless_statements() -> None:
    hateful, kinds = records_of("hatecheck"), records_of("hatecheck_functionality")
    found = Counter(
        (record.categories[record.labels[0]].name, whole.labels == [0])
        for record, whole in zip(kinds, hateful, strict=True)
    )
    assert len(found) == 29  # no kind is both hateful and harmless
    assert sum(harmful for _, harmful in found) == 18
    assert found["harmless word that is spelt like a slur", False] == 30
    assert found["hate with numbers for letters", True] == 173


@pytest.mark.parametrize(
    ("name", "low", "high", "mean", "distinct"),
    [
        ("emobank_valence", 1.2, 4.56, 2.983, 120),
        ("emobank_arousal", 1.8, 4.3, 3.031, 94),
        ("emobank_dominance", 1.78, 4.12, 3.069, 86),
    ],
)
def test_emotions_as_numbers(name: str, low: float, high: float, mean: float, distinct: int) -> None:
    values = [record.value or 0.0 for record in records_of(name)]
    assert (min(values), max(values), len(set(values))) == (low, high, distinct)
    assert sum(values) / len(values) == pytest.approx(mean, abs=0.0005)


@pytest.mark.parametrize(
    ("name", "half"),
    [
        ("ethos", 433),
        ("ethos_violence", 142),
        ("ethos_directed", 135),
        ("ethos_gender", 86),
        ("ethos_race", 76),
        ("ethos_national_origin", 74),
        ("ethos_disability", 53),
        ("ethos_religion", 81),
        ("ethos_sexual_orientation", 73),
    ],
)
def test_labels_that_half_of_the_annotators_see(name: str, half: int) -> None:
    values = [record.value or 0.0 for record in records_of(name)]
    assert sum(value >= 0.5 for value in values) == half
    assert (min(values), max(values)) == (0, 1)


def test_records_with_several_labels_or_none() -> None:
    several = [sum(len(r.labels) > 1 for r in records_of(n)) for n in ("xed_emotion", "perspectrum_topics")]
    assert several == [3873, 194]
    assert sum(not record.labels for record in records_of("perspectrum_topics")) == 51


def test_subjects_of_statements() -> None:
    ignored = set(dataset_spec("liar_subjects", SPECS).map.ignore_labels)
    names = dataset_spec("liar_subjects", SPECS).categories.label
    for (_, path), taken in ingested("liar_subjects").items():
        text = (folder_of("liar_subjects") / path).read_text(encoding="utf-8")
        fields = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
        subjects = Counter(subject for row in fields for subject in row[3].split(","))
        assert taken.labels == {names[s]: count for s, count in subjects.items() if s not in ignored}
        assert [record.text for record in taken.records] == [row[2] for row in fields]


def test_a_minimal_pair_is_a_sentence_and_its_correction() -> None:
    folder = folder_of("blimp_corrections")
    for (_, path), taken in ingested("blimp_corrections").items():
        rows = map(json.loads, (folder / path).read_text(encoding="utf-8").splitlines())
        expected = [(row["sentence_bad"], row["sentence_good"]) for row in rows]
        assert [(record.text, record.target) for record in taken.records] == expected


def test_warrants_are_the_candidates_of_a_reason_and_a_claim() -> None:
    record = next(record for record in records_of("arct") if record.split == "validation")
    assert record.text.splitlines()[0] == "Do Police Use Deadly Force Too Often?"
    assert record.text.splitlines()[2] == "Police use the excuse of fear for life to abuse use of force."
    assert record.pair == "Police is too willing to use force"
    assert record.categories[record.labels[0]].name == "the excuse is rarely warranted"
    assert [Counter(r.labels[0] for r in taken.records) for taken in ingested("arct").values()] == [
        {0: 591, 1: 619},
        {0: 164, 1: 152},
        {0: 214, 1: 230},
    ]


def test_quotes_belong_to_the_file_or_to_the_text() -> None:
    """The quotes around a tweet go where the file is CSV. They stay where a line is a row, whatever it holds."""
    assert [sum(r.text.startswith('"') for r in records_of(name)) for name in ("olid", "liar")] == [0, 406]
    assert sum('"' in record.text for record in records_of("olid")) == 638
    assert max(record.text.count("\n") for record in records_of("hate_davidson")) == 6


def plain(text: str) -> str:
    """The letters and digits of a text, without the names of Twitter's users."""
    return re.sub(r"[\W_]+", "", re.sub(r"@\w+", "@user", text.lower()))


@pytest.mark.parametrize(
    ("name", "twin", "shared"),
    [
        ("mr_polarity", "sst_fine", 9079),
        ("semeval2018_emotion_anger", "tweeteval_emotion", 2081),
        ("semeval2018_emotion_anger", "semeval2018_valence", 1019),
    ],
)
def test_twins_share_texts(name: str, twin: str, shared: int) -> None:
    texts = {plain(record.text) for record in records_of(twin)}
    assert sum(plain(record.text) in texts for record in records_of(name)) == shared
    assert dataset_spec(twin, SPECS).folder in dataset_spec(name, SPECS).twins


def test_windows_1252_is_read_as_its_letters() -> None:
    letters = Counter("".join(record.text for record in records_of("mr_polarity")))
    assert [letters[letter] for letter in "\u00e9\u2026\u2013\u2014\u2018"] == [99, 23, 17, 13, 6]
