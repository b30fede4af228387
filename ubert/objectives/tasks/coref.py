"""Coreference: one table of mentions, and one of links from each mention of a cluster to each later one.
Clusters are the connected components of the links."""

from __future__ import annotations

from itertools import combinations, pairwise

from ubert.model.tokenizer import Encoding
from ubert.objectives import Categories, ClusterPrediction, Link, Lost, Objective, Overlaps, Query, Scored, Targets
from ubert.objectives.common import Gold, choose, located, part, tokens_of
from ubert.objectives.links import links
from ubert.schema.components import components
from ubert.schema.record import Category, Record

MENTION, SAME = Category("mention", "entity"), Category("refers to the same", "relation")


def tables(categories: Categories) -> Categories:
    """Return the tables of mentions and links, whatever the record's own categories are."""
    return (MENTION, SAME)


def targets(record: Record, encoding: Encoding) -> Targets:
    """Return the mentions' cells, and two cells for each pair of mentions in a cluster."""
    gold, found = Gold(), tokens_of(record, encoding)
    clusters: dict[int, dict[tuple[int, int], int]] = {}
    columns = (column.tolist() for column in found)
    for i, (mention, first, last, fit) in enumerate(zip(record.spans, *columns, strict=True)):
        if last < first:
            gold.lost.append(Lost("in the pair" if mention.side == "pair" else "no token", i))
        else:
            gold.mention((0, first, last), i, fit)
            if mention.group is not None:
                clusters.setdefault(mention.group, {}).setdefault((first, last), i)
    for cluster in clusters.values():
        ordered = sorted(cluster, key=_in_order)
        cells = {pair: gold.link(1, *pair) for pair in combinations(ordered, 2)}
        gold.links += [Link(cluster[a], cluster[b], [cells[a, b]]) for a, b in pairwise(ordered)]
    return gold.targets()


def decode(
    query: Query, encoding: Encoding, scored: Scored, *, threshold: float = 0.0, overlap: Overlaps = "nested"
) -> list[ClusterPrediction]:
    """Return clusters of mentions, ordered by their first mentions.

    `overlap` is ignored: mentions may always overlap, as a whole and its parts do.
    """
    cells = part(scored.cells, [0])
    chosen = choose(query, encoding, cells, threshold=threshold, overlap="nested")
    read = located(query, encoding, cells, chosen)
    read.sort(key=lambda one: _in_order((int(cells.start[one[0]]), int(cells.end[one[0]]))))
    places = [(int(cells.start[i]), int(cells.end[i])) for i, _ in read]
    found = links(scored.cells, 1, places, threshold=threshold, joins=lambda head_P, tail_P: head_P < tail_P)
    groups = components(len(read), ((link.head, link.tail) for link in found))
    return [ClusterPrediction(tuple(read[i][1] for i in group)) for group in groups]


def _in_order(place: tuple[int, int]) -> tuple[int, int]:
    """Sort by start; of mentions with the same start, the longer comes first."""
    return place[0], -place[1]


OBJECTIVE = Objective(kind="entity", targets=targets, decode=decode, tables=tables)
