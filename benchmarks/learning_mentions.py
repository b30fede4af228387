"""Reduce relation and event corpora to mentions (entities or triggers), for heads that only tag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from learning_heads import Predict
from msgspec.structs import replace

from ubert.objectives import Prediction, SpanPrediction
from ubert.schema.record import Record, Span

MAX_CHARACTERS = 600  # maximum characters of a part, so that its tokens fit the head

Train = Callable[[Sequence[Record], str, float, int], Predict]


def mentions(record: Record) -> Record:
    """Reduce a record to its typed mentions, or an event record to its triggers."""
    kind = "event" if record.task == "event" else "entity"
    held = [place for place, category in enumerate(record.categories) if category.kind == kind]
    place_of = {old: new for new, old in enumerate(held)}
    if record.task == "event":
        marked = {
            (record.spans[event.trigger].start, record.spans[event.trigger].end, event.category)
            for event in record.events
            if event.trigger is not None
        }
    else:
        marked = {(s.start, s.end, s.category) for s in record.spans if s.category in place_of}
    return replace(
        record,
        task="ner",
        categories=tuple(record.categories[old] for old in held),
        spans=[Span(start, end, place_of[category]) for start, end, category in sorted(marked)],
        relations=[],
        events=[],
    )


def in_parts(train: Train) -> Train:
    """Wrap a head so that it trains and predicts on parts of long texts."""

    def trained(records: Sequence[Record], encoder: str, seconds: float, seed: int) -> Predict:
        whole = train([part for record in records for _, part in parts(record)], encoder, seconds, seed)

        def predict(tested: list[Record]) -> Iterator[list[Prediction]]:
            cut = [(number, *part) for number, record in enumerate(tested) for part in parts(record)]
            found = zip(cut, whole([part for _, _, part in cut]), strict=True)
            for _, of_record in groupby(found, key=lambda each: each[0][0]):
                yield [moved for (_, at, _), predictions in of_record for moved in _moved(predictions, at)]

        return predict

    return trained


def parts(record: Record) -> Iterable[tuple[int, Record]]:
    """Split a record at sentences, or at least at words; yield each part with its offset.

    A mention that crosses a boundary is dropped.
    """
    text, cuts = record.text, [0]
    while len(text) - cuts[-1] > MAX_CHARACTERS:
        most = cuts[-1] + MAX_CHARACTERS
        ends = (text.rfind(end, cuts[-1] + 1, most) + len(end) for end in (". ", "\n", " "))
        cuts.append(next((end for end in ends if end > cuts[-1] + MAX_CHARACTERS // 4), most))
    for start, end in pairwise([*cuts, len(text)]):
        inside = [s for s in record.spans if start <= s.start and s.end <= end]
        spans = [Span(s.start - start, s.end - start, s.category) for s in inside]
        yield start, replace(record, text=text[start:end], spans=spans)


def _moved(predictions: Iterable[Prediction], by: int) -> Iterator[SpanPrediction]:
    for found in predictions:
        assert isinstance(found, SpanPrediction)
        yield SpanPrediction(found.start + by, found.end + by, found.category, found.text, found.score)
