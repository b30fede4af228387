"""Convert records to gold cells, gold cells to perfect scores, and these back to annotations.

The result shows what a model without errors would achieve, and why it may not be everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, pairwise, product
from typing import NamedTuple

import numpy as np

from ubert.evaluation.annotations import Annotation, Mention, annotated, nearest, predicted, representatives
from ubert.inference.windows import Window, cover, whole
from ubert.model.tokenizer import Encoding, Fit, Tokenizer, align
from ubert.objectives import Cells, Prediction, Query, Scored, Targets, objective, passes
from ubert.schema.checks import filler
from ubert.schema.components import components
from ubert.schema.record import Record
from ubert.structure.batch import Region

WINDOW = 448  # tokens of a window; the rest of 512 is for an instruction and a few categories
CHUNK = 1000  # records tokenised together
SURE = 10.0  # logit of a perfect score
SHARED = "shared cells"
NO_TARGET = "no target"
IN_NO_EVENT = "in no event"


class Place(NamedTuple):
    """The tokens of a mention, how well they fit it, and the mention that they decode to (None without tokens)."""

    first: int
    last: int
    fit: int
    image: Mention | None


def round_trip(record: Record, encoding: Encoding) -> Counter[str]:
    """Count which annotations of a record survive the round trip.

    Returns:
        `records`: 1. `exact`: 1 if the decoded annotations equal the record's. `annotations`: number of distinct
        annotations. The other keys count annotations that don't come back unchanged, by reason:

        - `no token`
        - `same tokens as another`
        - `in no one window`: longer than a window, or a link whose ends are in no common window
        - `widened` or `narrowed`: they come back with the boundaries of their tokens
        - `rounded`: a value that comes back as its nearest bucket
        - `joined`: events that come back merged with another one of the same trigger
        - `shared cells`: links that are wrongly read or missed. All of their cells are cells of other links, whose
          mentions have the same first or last tokens.
        - `no target`: annotations that no model is trained on. These are events without a trigger, arguments of
          such events, arguments that are such events, and mentions without a category if the task needs it. A
          record with one isn't exact.
        - `in no event`: mentions of an event record that belong to none of its events
        - `unexplained`: annotations that vanish or appear for no known reason, which is a defect
    """
    gold = annotated(record)
    known = _Known(record, encoding, gold)
    found = {known.of_clusters(each) for each in predicted(record, decoded(record, encoding))}
    untrained = _untrained(record)
    counts = Counter(records=1, exact=int(found == gold and not untrained[NO_TARGET]), annotations=len(gold))
    counts.update(untrained)
    wanted = set(known.wanted(gold))
    odd = {known.original(each) for each in found} ^ wanted
    shared = known.sharing(odd, wanted)
    counts["unexplained"] = len(odd - shared)
    counts[SHARED] = len(shared)
    gone = {each for each in gold - found if known.canonical(each) not in odd}
    counts.update(known.reason(each) for each in gone)
    if record.value is not None and record.categories:
        counts["rounded"] = int(float(nearest(record, record.value)) != np.float32(record.value))
    triggers = [(event.category, event.trigger) for event in record.events if event.trigger is not None]
    counts["joined"] = len(triggers) - len(set(triggers))
    return counts


def _untrained(record: Record) -> Counter[str]:
    """Count the annotations of a record that never become a target."""
    counts: Counter[str] = Counter()
    if record.task == "ner":
        counts[NO_TARGET] = sum(span.category is None or span.side != "text" for span in record.spans)
    used: set[int | None] = set()
    for event in record.events:
        fillers = [filler(record, argument) for argument in event.arguments]
        if event.trigger is None:
            counts[NO_TARGET] += 1 + len(fillers)
        else:
            counts[NO_TARGET] += fillers.count(None)
            used |= {event.trigger, *fillers}
    if record.task == "event":
        counts[IN_NO_EVENT] = len(set(range(len(record.spans))) - used)
    return counts


def decoded(record: Record, encoding: Encoding) -> Sequence[Prediction]:
    """Decode perfect scores of the record's gold cells."""
    task = objective(record.task)
    (query, targets), *others = passes(record, encoding)
    found = task.decode(query, encoding, _perfect(query, targets, encoding), threshold=0.0, overlap="nested")
    if task.second is None:
        return found
    right = dict(others)
    answers = [
        task.second.decode(each, encoding, _perfect(each, right[each], encoding), threshold=0.0, overlap="nested")
        for each in task.second.ask(query, encoding, found)
    ]
    return task.second.join(query, found, answers)


def total(records: Iterable[Record], tokenizer: Tokenizer) -> Counter[str]:
    """Sum `round_trip` over records."""
    counts: Counter[str] = Counter()
    remaining = iter(records)
    while chunk := list(islice(remaining, CHUNK)):
        encodings = tokenizer.encode([record.text for record in chunk])
        for record, encoding in zip(chunk, encodings, strict=True):
            counts.update(round_trip(record, encoding))
    return counts


def _perfect(query: Query, targets: Targets, encoding: Encoding) -> Scored:
    """Return the scores of a model that makes no error in any window of the text.

    It sees the cells that lie completely in a window. If an anchor means "no answer", it scores high in the
    windows without an answer.
    """
    parts = []
    cells = targets.gold_cells
    for window in cover(len(encoding.ids), WINDOW, query.around):
        places = cells[:, 1:]
        inside = cells[((places >= window.start) & (places < window.stop)).all(axis=1)]
        anchor = np.full(len(query.categories), -SURE, np.float32)
        anchor[targets.gold_anchors] = SURE
        if query.region != Region.ANCHOR and query.region & Region.ANCHOR:
            anchor[np.setdiff1d(cells[:, 0], inside[:, 0])] = SURE
        category, start, end = inside.T
        score = np.full(len(inside), SURE, np.float32)
        parts.append((window, Scored(anchor, Cells(category, start - window.start, end - window.start, score))))
    return whole(parts, query.region)


class _Known:
    """The effects of tokens and windows on a record's mentions."""

    def __init__(self, record: Record, encoding: Encoding, gold: set[Annotation]) -> None:
        self.tokens = len(encoding.ids)
        self.same = representatives(record)
        mentions = sorted({m for annotation in gold for m in annotation.mentions} | set(self.same))
        found = align(encoding, [m.start for m in mentions], [m.end for m in mentions])
        self.places = {
            mention: Place(first, last, fit, _image(mention, encoding, first, last))
            for mention, first, last, fit in zip(
                mentions, found.first.tolist(), found.last.tolist(), found.fit.tolist(), strict=True
            )
        }
        self.back: dict[Mention, Mention] = {}  # the first of several mentions with one image
        for mention, place in self.places.items():
            if place.image is not None:
                self.back.setdefault(place.image, mention)
        self.clusters: dict[Mention, list[Mention]] = {}
        for mention, representative in self.same.items():
            self.clusters.setdefault(representative, []).append(mention)

    def original(self, annotation: Annotation) -> Annotation:
        """Replace the mentions of a decoded annotation, which are images, with the record's mentions."""
        mentions = tuple(self.back.get(mention, mention) for mention in annotation.mentions)
        return self.of_clusters(annotation._replace(mentions=mentions))

    def of_clusters(self, annotation: Annotation) -> Annotation:
        """Replace a relation's mentions with the first ones of their clusters; sort a cluster's mentions."""
        mentions = annotation.mentions
        if annotation.kind == "relation":
            mentions = tuple(self.same.get(mention, mention) for mention in mentions)
        return annotation._replace(mentions=tuple(sorted(mentions)) if annotation.kind == "cluster" else mentions)

    def wanted(self, gold: set[Annotation]) -> Iterator[Annotation]:
        """Yield the annotations that should come back."""
        for annotation in gold:
            if annotation.kind != "cluster" and not self._lost(annotation) and self._held(annotation):
                yield self.canonical(annotation)
        yield from self._clusters([annotation for annotation in gold if annotation.kind == "cluster"])

    def reason(self, annotation: Annotation) -> str:
        """Return why an annotation doesn't come back unchanged."""
        if self._lost(annotation):
            return "no token"
        if self.canonical(annotation) != annotation:
            return "same tokens as another"
        if not self._held(annotation):
            return "in no one window"
        fits = sorted(self.places[mention].fit for mention in annotation.mentions)
        if fits and fits[-1] == Fit.EXACT:  # clusters with a mention in common come back as one
            return "same tokens as another"
        return Fit(fits[-1]).name.lower() if fits else "unexplained"

    def sharing(self, odd: set[Annotation], wanted: set[Annotation]) -> set[Annotation]:
        """Return the odd annotations that shared cells explain: links whose cells are all cells of other links."""
        cells = {each: set(self._cells(each)) for each in wanted | odd if each.kind == "relation"}
        found = set()
        for each in (each for each in odd if each.kind == "relation"):
            others = (of for other, of in cells.items() if other != each and other.name == each.name)
            every = set().union(*others)
            if any(both <= every for both in self._links(each)):
                found.add(each)
        kinds = {each.kind for each in odd - found}
        if "cluster" in kinds:
            found |= self._between(odd, wanted)
        return found | (self._touching(odd, wanted) if "mention" in kinds else set())

    def _touching(self, odd: set[Annotation], wanted: set[Annotation]) -> set[Annotation]:
        """Return the odd mentions that shared cells of discontinuous mentions explain.

        These have a fragment, or all cells of a link, in common with several discontinuous mentions, or share
        a fragment with such a mention.
        """
        every = [each for each in wanted | odd if each.kind == "mention"]
        right = [each for each in every if each in wanted]
        times = Counter(fragment for each in right for fragment in each.mentions)
        pairs = {pair for each in right for pair in combinations(each.mentions, 2)}
        gold = Counter(cell for pair in pairs for cell in self._both(*pair))
        doubtful = {pair for pair in pairs if all(gold[cell] > 1 for cell in self._both(*pair))}
        bad = {
            i
            for i, each in enumerate(every)
            if any(times[fragment] > 1 for fragment in each.mentions)
            or any(
                pair in doubtful or (pair not in pairs and self._both(*pair) <= set(gold))
                for pair in combinations(each.mentions, 2)
            )
        }
        of_fragment: dict[Mention, list[int]] = {}
        for i, each in enumerate(every):
            for fragment in each.mentions:
                of_fragment.setdefault(fragment, []).append(i)
        touching = (pair for numbers in of_fragment.values() for pair in pairwise(numbers))
        groups = components(len(every), touching)
        return {every[i] for group in groups if bad & set(group) for i in group} & odd

    def _between(self, odd: set[Annotation], wanted: set[Annotation]) -> set[Annotation]:
        """Return the odd clusters that shared cells explain.

        Such a cluster contains what the sure links connect, and is part of what all readable links connect. A
        readable link is a pair of mentions with gold cells. It is sure if no other readable link has one of
        its cells.
        """
        clusters = [each for each in wanted | odd if each.kind == "cluster"]
        mentions = sorted({m for each in clusters for m in each.mentions if m in self.places}, key=self._in_order)
        gold = {cell for each in clusters if each in wanted for cell in self._cells(each)}
        read = {
            (a, b): both
            for (a, first), (b, last) in combinations(enumerate(mentions), 2)
            if (both := self._both(first, last)) <= gold
        }
        times = Counter(cell for both in read.values() for cell in both)
        sure = [
            (a, b)
            for (a, b), both in read.items()
            if any(times[cell] == 1 for cell in both) and self._together(mentions[a], mentions[b])
        ]
        least, most = (
            [{mentions[i] for i in group} for group in components(len(mentions), pairs)] for pairs in (sure, read)
        )
        between = {
            each
            for each in clusters
            if each in odd - wanted
            and any(group.issuperset(each.mentions) for group in most)
            and all(group.issubset(each.mentions) or group.isdisjoint(each.mentions) for group in least)
        }
        there = {mention for each in between for mention in each.mentions}
        return between | {each for each in clusters if each in odd & wanted and there.issuperset(each.mentions)}

    def _links(self, annotation: Annotation) -> Iterator[set[tuple[int, int]]]:
        """Yield the cells of each link that an annotation consists of."""
        pairs: Iterable[tuple[Mention, ...]]
        if annotation.kind == "relation":
            pairs = product(*(self.clusters.get(mention, [mention]) for mention in annotation.mentions))
        else:
            pairs = combinations(sorted(annotation.mentions, key=self._in_order), 2)
        yield from (self._both(head, tail) for head, tail in pairs)

    def _both(self, head: Mention, tail: Mention) -> set[tuple[int, int]]:
        """Return the two cells of a link."""
        first, last = self.places[head], self.places[tail]
        return {(first.first, last.first), (first.last, last.last)}

    def _in_order(self, mention: Mention) -> tuple[int, int]:
        return self.places[mention].first, -self.places[mention].last

    def _cells(self, annotation: Annotation) -> Iterator[tuple[int, int]]:
        return (cell for both in self._links(annotation) for cell in both)

    def _clusters(self, gold: Sequence[Annotation]) -> Iterator[Annotation]:
        """Yield the clusters that are connected by windows with two of their mentions."""
        mentions = sorted({m for each in gold for m in map(self._one, each.mentions) if m is not None})
        number = {mention: i for i, mention in enumerate(mentions)}
        pairs = [
            (number[a], number[b])
            for each in gold
            for a, b in combinations([m for m in map(self._one, each.mentions) if m is not None], 2)
            if self._together(a, b)
        ]
        for group in components(len(mentions), pairs):
            yield Annotation("cluster", gold[0].name, tuple(mentions[i] for i in group))

    def _lost(self, annotation: Annotation) -> bool:
        return any(self.places[mention].image is None for mention in annotation.mentions)

    def _one(self, mention: Mention) -> Mention | None:
        """Return the mention that represents all mentions with the same tokens."""
        image = self.places[mention].image
        return None if image is None else self.back[image]

    def canonical(self, annotation: Annotation) -> Annotation:
        """Replace the annotation's mentions with those that represent all mentions with the same tokens."""
        mentions = tuple(self._one(mention) or mention for mention in annotation.mentions)
        return self.of_clusters(annotation._replace(mentions=mentions))

    def _held(self, annotation: Annotation) -> bool:
        """Return whether one window contains all that the annotation joins."""
        if annotation.kind == "argument":
            trigger, argument = (self.places[mention] for mention in annotation.mentions)
            [window] = cover(self.tokens, WINDOW, (trigger.first, trigger.last))
            return _inside(window, trigger) and _inside(window, argument)
        if annotation.kind == "relation":
            ends = (self.clusters.get(mention, [mention]) for mention in annotation.mentions)
            return any(self._together(head, tail) for head, tail in product(*ends))
        if annotation.kind == "cluster":
            return len(list(self._clusters([annotation]))) == 1
        return self._together(*annotation.mentions)

    def _together(self, *mentions: Mention) -> bool:
        views = cover(self.tokens, WINDOW)
        return any(all(_inside(window, self.places[mention]) for mention in mentions) for window in views)


def _inside(window: Window, place: Place) -> bool:
    return place.image is not None and window.start <= place.first and place.last < window.stop


def _image(mention: Mention, encoding: Encoding, first: int, last: int) -> Mention | None:
    if last < first:
        return None
    return Mention(mention.name, int(encoding.starts[first]), int(encoding.ends[last]))
