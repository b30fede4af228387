"""The spaCy component `ubert`: `nlp.add_pipe("ubert", config={"model": ..., "categories": [...]})`.

spaCy finds it by an entry point of this package, and imports this file when the component is first requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import ubert
from ubert.inference.results import Result
from ubert.objectives import LabelPrediction, SpanPrediction
from ubert.schema.errors import UserError

if TYPE_CHECKING:
    from spacy.tokens import Doc, Span

TASKS = ("ner", "classification", "multilabel")
KEY = "ubert"  # key in doc.spans


class UbertComponent:
    """Predict the mentions or the labels of a document.

    Mentions go to `doc.spans["ubert"]`, and those that don't overlap also to `doc.ents`. Labels go to `doc.cats`.
    What earlier components added there stays. `doc.spans["ubert"].attrs["scores"]` has the score of each span, or
    None for a span that another component added.
    """

    def __init__(self, model: str, task: str, categories: Sequence[str], asked: dict[str, Any]) -> None:
        if task not in TASKS:
            raise UserError(f"task {task!r} doesn't fit a spaCy document; expected one of {', '.join(TASKS)}")
        self.predictor = ubert.load(model)
        self.asked = {"task": task, "categories": categories, **asked}

    def __call__(self, doc: Doc) -> Doc:
        [found] = self.pipe([doc])
        return found

    def pipe(self, docs: Iterable[Doc], batch_size: int = 128) -> Iterator[Doc]:
        """Annotate documents in batches. Documents without words stay unchanged."""
        remaining = iter(docs)
        while batch := list(islice(remaining, batch_size)):
            worded = [doc for doc in batch if doc.text.strip()]
            results = self.predictor.predict([doc.text for doc in worded], **self.asked)
            annotate = _mark if self.asked["task"] == "ner" else _label
            for doc, result in zip(worded, results, strict=True):
                annotate(doc, result)
            yield from batch


def _label(doc: Doc, result: Result) -> None:
    doc.cats |= {label.category: label.score for label in result if isinstance(label, LabelPrediction)}


def _mark(doc: Doc, result: Result) -> None:
    from spacy.tokens import SpanGroup
    from spacy.util import filter_spans

    mentions = [mention for mention in result if isinstance(mention, SpanPrediction)]
    spans = [_span(doc, mention) for mention in mentions]
    if KEY not in doc.spans:
        doc.spans[KEY] = SpanGroup(doc, name=KEY)
    group = doc.spans[KEY]
    scores = group.attrs.get("scores", [])
    unscored = [None] * (len(group) - len(scores))  # of other components
    group.attrs["scores"] = [*scores, *unscored, *(mention.score for mention in mentions)]
    group.extend(spans)
    untagged = [span for span in spans if not any(token.ent_type for token in span)]
    doc.set_ents([*doc.ents, *filter_spans(untagged)])


def _span(doc: Doc, mention: SpanPrediction) -> Span:
    """Expand a mention to whole spaCy tokens."""
    span = doc.char_span(mention.start, mention.end, mention.category, alignment_mode="expand")
    assert span is not None  # offsets of a mention lie within the text
    return span


def create(
    nlp: Any,  # spaCy validates settings by these types
    name: str,
    model: str,
    task: str,
    categories: list[str],
    instruction: str | None,
    threshold: float | None,
    overlap: str,
) -> UbertComponent:
    """Make the component; see `ubert.inference.predictor.Predictor.predict` for its settings."""
    return UbertComponent(
        model, task, categories, {"instruction": instruction, "threshold": threshold, "overlap": overlap}
    )


try:
    from spacy.language import Language as _Language
except ImportError:  # only spaCy needs the factory
    pass
else:
    factory = _Language.factory(
        "ubert",
        default_config={
            "model": "universal-small",
            "task": "ner",
            "categories": [],
            "instruction": None,
            "threshold": None,
            "overlap": "highest",
        },
        assigns=["doc.ents", "doc.spans", "doc.cats"],
        func=create,
    )
