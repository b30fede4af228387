"""BLEU-4 and ROUGE-L of generated texts, compared with the packages' own scores of a whole corpus."""

from __future__ import annotations

from math import exp
from sys import float_info

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import corpus_bleu
from test_metrics import measure, record, total

from ubert.evaluation import metric
from ubert.objectives import Prediction, TextPrediction, WrittenPrediction
from ubert.schema.record import Record

words = st.lists(
    st.sampled_from(["the", "cat", "dog", "sat,", "on", "a", "mat.", "It's", "red"]), max_size=12
).map(" ".join)


def pairs(texts: list[tuple[str, str]], language: str = "en") -> list[tuple[Record, list[Prediction]]]:
    found = []
    for target, written in texts:
        one = record("seq2seq", target=target)
        one.language = language
        found.append((one, [WrittenPrediction(written, -1.0)]))
    return found


@given(st.lists(st.tuples(words, words), min_size=1, max_size=10))
@settings(deadline=None)
def test_english_is_as_the_packages_score_a_corpus(texts: list[tuple[str, str]]) -> None:
    targets, written = map(list, zip(*texts, strict=True))
    bleu = corpus_bleu(written, [targets], smooth_method="none", lowercase=True)
    rouge = [RougeScorer(["rougeL"]).score(target, text)["rougeL"].fmeasure for target, text in texts]
    assert measure("seq2seq", pairs(texts)) == {
        "bleu4": pytest.approx(bleu.score / 100),
        "rouge_l": pytest.approx(sum(rouge) / len(rouge)),
    }


def test_the_target_itself_is_perfect_and_other_words_are_nothing() -> None:
    text = "Shares of Quillfen fell by a tenth on Monday."
    assert measure("seq2seq", pairs([(text, text)])) == {"bleu4": pytest.approx(1), "rouge_l": pytest.approx(1)}
    assert measure("seq2seq", pairs([(text, "no word is shared here")])) == {"bleu4": 0.0, "rouge_l": 0.0}


def test_by_hand() -> None:
    """Target: five words. The longest common subsequence has three: precision 3/4, recall 3/5."""
    measured = measure("seq2seq", pairs([("the cat sat on mat", "the dog sat on")]))
    assert measured["rouge_l"] == pytest.approx(2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5))


@pytest.mark.parametrize(
    ("language", "target", "near"),
    [
        ("zh", "公司股价周一下跌", "公司股价周二下跌"),
        ("zh-Hant", "公司股价周一下跌", "公司股价周二下跌"),
        ("ja", "今日は雨です", "今日は雪です"),
    ],
)
def test_languages_without_spaces_are_compared_by_characters(language: str, target: str, near: str) -> None:
    assert measure("seq2seq", pairs([(target, target)], language))["bleu4"] == pytest.approx(1)
    rouge = measure("seq2seq", pairs([(target, near)], language))["rouge_l"]
    assert rouge == pytest.approx((len(target) - 1) / len(target))


def test_other_letters_than_english_ones_count() -> None:
    assert measure("seq2seq", pairs([("кот сидит", "Кот спит")], "ru"))["rouge_l"] == pytest.approx(0.5)


def test_counts_of_parts_add_and_no_prediction_is_an_empty_text() -> None:
    texts = [("the cat sat on a mat", "the cat sat on the mat"), ("a dog", "a dog"), ("it is red", "")]
    whole = pairs(texts)
    assert total("seq2seq", whole) == total("seq2seq", whole[:1]) + total("seq2seq", whole[1:])
    nothing = [(one, [p for p in found if p.text]) for one, found in whole]  # type: ignore[union-attr]
    assert measure("seq2seq", nothing) == measure("seq2seq", whole)
    assert metric("seq2seq").summarise(total("seq2seq", [])) == {"bleu4": 0.0, "rouge_l": 0.0}


def test_the_perplexity_of_a_model_that_diverged_is_a_number() -> None:
    found = measure("text", [(record("text"), [TextPrediction(8000.0, 10)])])
    assert found == {"perplexity": pytest.approx(float_info.max)}


def test_perplexity_counts_every_masked_token_of_texts_that_are_alike() -> None:
    found = measure("text", [(record("text"), [TextPrediction(2.0, 2)]) for _ in range(3)])
    assert found == {"perplexity": pytest.approx(exp(1))}


def test_the_best_of_several_texts_counts_whatever_its_capitals() -> None:
    one = record("seq2seq", target="The Cat sat on a Mat today")
    texts = [WrittenPrediction("the cat sat on a mat today", -1.0), WrittenPrediction("no", -2.0)]
    assert measure("seq2seq", [(one, texts)]) == {"bleu4": pytest.approx(1), "rouge_l": pytest.approx(1)}
