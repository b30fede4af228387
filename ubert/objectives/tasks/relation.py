"""Relations: one table of mentions per entity type, shared by all relations, and one table of links per relation.

A link goes from the head to the tail, in either direction of the text. Mentions without a type are in one
common table.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ubert.encoder.ragged import Longs
from ubert.model.tokenizer import Encoding, TokenSpans
from ubert.objectives import (
    Categories,
    Link,
    Objective,
    Overlaps,
    Query,
    RelationPrediction,
    Scored,
    SpanPrediction,
    Targets,
)
from ubert.objectives.common import Gold, add_mentions, choose, in_order, located, part, probability, tokens_of
from ubert.objectives.links import Flags, links
from ubert.schema.record import Category, Record

UNTYPED = "entity"


def tables(categories: Categories) -> Categories:
    """Return the entity types and relations. Without entity types, add one table for all mentions."""
    typed = any(category.kind == "entity" for category in categories)
    return categories if typed else (*categories, Category(UNTYPED, "entity"))


def targets(record: Record, encoding: Encoding) -> Targets:
    """Return the mentions' cells, and two cells for each relation. A relation between coreference clusters
    has cells for each pair of their mentions."""
    gold, found = Gold(), tokens_of(record, encoding)
    untyped = len(record.categories) if len(tables(record.categories)) > len(record.categories) else None
    add_mentions(gold, record, found, untyped)
    for relation in record.relations:
        heads, tails = (_places(record, found, i) for i in (relation.head, relation.tail))
        cells = [gold.link(relation.category, head, tail) for head, tail in product(heads, tails)]
        gold.links.append(Link(relation.head, relation.tail, cells))
    return gold.targets()


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction | RelationPrediction]:
    """Return the mentions as in `ner`, then the relations between mentions of fitting types, best first."""
    kinds = [category.kind for category in query.categories]
    cells = part(scored.cells, (i for i, kind in enumerate(kinds) if kind == "entity"))
    chosen = choose(query, encoding, cells, threshold=threshold, overlap=overlap)
    read = located(query, encoding, cells, chosen)
    mentions = [mention for _, mention in read]
    places = [(int(cells.start[i]), int(cells.end[i])) for i, _ in read]
    relations = []
    for table, category in enumerate(query.categories):
        if category.kind != "relation":
            continue

        heads, tails = (
            np.array([wanted in (None, mention.category) for mention in mentions], np.bool_)
            for wanted in (category.head, category.tail)
        )

        def joins(head_P: Longs, tail_P: Longs, heads: Flags = heads, tails: Flags = tails) -> Flags:
            return heads[head_P] & tails[tail_P]

        for link in links(scored.cells, table, places, threshold=threshold, joins=joins):
            score = probability(link.score)
            relations.append(RelationPrediction(category.name, mentions[link.head], mentions[link.tail], score))
    relations.sort(key=lambda relation: -relation.score)
    return [*in_order(mentions), *relations]


def _places(record: Record, found: TokenSpans, i: int) -> list[tuple[int, int]]:
    """Return the tokens of the mentions of a relation's end: those of its cluster, or only itself."""
    group = record.spans[i].group
    same = [i] if group is None else [j for j, other in enumerate(record.spans) if other.group == group]
    return [(int(found.first[j]), int(found.last[j])) for j in same if found.first[j] <= found.last[j]]


OBJECTIVE = Objective(kind="entity", targets=targets, decode=decode, tables=tables)
