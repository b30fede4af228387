"""Mentions of entity types: one table per type, one cell per mention (UBERT, section 3.1).

Each fragment of a discontinuous mention has its own cell. If the candidates have a relation (`PARTS`), its
table links each pair of fragments of a mention. Mentions are then the maximal cliques of linked fragments
(Wang et al., "Discontinuous Named Entity Recognition as Maximal Clique Discovery", 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

from ubert.model.tokenizer import Encoding, align
from ubert.objectives import (
    Cells,
    DiscontinuousPrediction,
    Link,
    Objective,
    Overlaps,
    Query,
    Scored,
    SpanPrediction,
    Targets,
)
from ubert.objectives.common import Gold, add_mentions, choose, in_order, part, probability, spans, tokens_of
from ubert.objectives.links import Linked, links
from ubert.schema.record import Category, Record

PARTS = Category("parts of the same mention", "relation")


def targets(record: Record, encoding: Encoding) -> Targets:
    """Return the mentions' cells and, if the candidates have a relation, two cells for each pair of fragments
    of a mention."""
    gold, found = Gold(), tokens_of(record, encoding)
    add_mentions(gold, record, found)
    for table in (i for i, category in enumerate(record.categories) if category.kind == "relation"):
        for fragments in discontinuous(record):
            for a, b in combinations(fragments, 2):
                ends = [(int(found.first[i]), int(found.last[i])) for i in (a, b)]
                lost = any(last < first for first, last in ends)
                gold.links.append(Link(a, b, [] if lost else [gold.link(table, *ends)]))
    return gold.targets()


def discontinuous(record: Record) -> list[list[int]]:
    """Return the spans of each mention with several fragments, in text order, the longer first."""
    groups: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    for i, each in enumerate(record.spans):
        if each.group is not None and each.category is not None and each.side == "text":
            groups.setdefault((each.group, each.category), {}).setdefault((each.start, -each.end), i)
    return [[group[place] for place in sorted(group)] for group in groups.values() if len(group) > 1]


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "highest"
) -> list[SpanPrediction | DiscontinuousPrediction]:
    """Return the mentions whose cell is above the threshold, in text order. Discontinuous ones are sorted by
    their first fragment."""
    cells = part(scored.cells, (i for i, category in enumerate(query.categories) if category.kind == "entity"))
    chosen = choose(query, encoding, cells, threshold=threshold, overlap=overlap)
    whole = spans(query, encoding, cells, chosen)
    found: list[SpanPrediction | DiscontinuousPrediction] = []
    for table in (i for i, category in enumerate(query.categories) if category.kind == "relation"):
        parts = _joined(encoding, scored.cells, table, whole, threshold)
        whole = [mention for mention in whole if not any(mention in each.fragments for each in parts)]
        found += parts
    return sorted([*found, *whole], key=_start)


def _start(found: SpanPrediction | DiscontinuousPrediction) -> tuple[int, int]:
    first = found if isinstance(found, SpanPrediction) else found.fragments[0]
    return first.start, -first.end


def _joined(
    encoding: Encoding, cells: Cells, table: int, mentions: Sequence[SpanPrediction], threshold: float
) -> list[DiscontinuousPrediction]:
    """Return the mentions of several fragments, type by type."""
    found = []
    for name in dict.fromkeys(mention.category for mention in mentions):
        same = in_order(mention for mention in mentions if mention.category == name)
        places = align(encoding, [each.start for each in same], [each.end for each in same])
        ends = list(zip(places.first.tolist(), places.last.tolist(), strict=True))
        linked = links(cells, table, ends, threshold=threshold, joins=lambda head_P, tail_P: head_P < tail_P)
        for numbers, score in _cliques(linked):
            fragments = tuple(same[i] for i in numbers)
            least = min(probability(score), *(fragment.score for fragment in fragments))
            found.append(DiscontinuousPrediction(name, fragments, least))
    return found


def _cliques(linked: Sequence[Linked]) -> list[tuple[list[int], float]]:
    """Return the maximal cliques of linked mentions, each with the lowest score of its links.

    At most as many cliques as links are returned. That is all of them, unless nearly everything is linked.
    """
    if not linked:
        return []
    import networkx  # here because it takes a while to import

    graph = networkx.Graph()
    graph.add_weighted_edges_from((link.head, link.tail, link.score) for link in linked)
    cliques = sorted(map(sorted, islice(networkx.find_cliques(graph), len(linked))))
    return [(clique, min(graph[a][b]["weight"] for a, b in combinations(clique, 2))) for clique in cliques]


OBJECTIVE = Objective(kind="entity", targets=targets, decode=decode)
