"""Find the records of a mixture that have the same or nearly the same text as a held-out corpus.

Texts are compared as sets of shingles, and no near pair is missed. Shingles are sorted with the rarest first. Two
sets of Jaccard similarity t or more then share one of the first |x| - ceil(t |x|) + 1 shingles of each (prefix
filtering: Chaudhuri, Ganti and Kaushik 2006, "A Primitive Operator for Similarity Joins in Data Cleaning").
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

import duckdb
import pyarrow as pa

from pipelines.audit.evidence import DROPPED
from pipelines.audit.shingles import jaccard, shingles, words
from pipelines.progress import progress
from pipelines.store.store import Store
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest
from ubert.schema.record import normal_form
from ubert.schema.specs.mixture import Mixture

NEAR = 0.8  # least Jaccard similarity of two texts that count as the same
LEAST_WORDS = 4  # shorter pairs are not compared: they are aspects, answers and options, which match by chance
ROWS = 2_048


class Match(NamedTuple):
    """A held-out record whose text matches that of another record."""

    record_id: str
    corpus: str
    split: str
    kind: str  # exact or near


def held_out_corpora(mixture: Mixture, store: Store) -> dict[str, CorpusManifest]:
    """Return the corpora that a mixture holds out, by name: those that `hold_out` names, and their twins.

    Raises:
        UserError: a name matches no corpus of the store, or the mixture draws from one of them.
    """
    if not mixture.hold_out:
        return {}
    corpora = {name: manifest for name, (_, manifest) in store.currents("corpora").items()}
    for wanted in mixture.hold_out:
        if not any(fnmatchcase(name, wanted) for name in corpora):
            raise UserError(
                f"mixture {mixture.name}: hold_out: {wanted} is not a corpus of the store {str(store.root)!r}; "
                "ingest it, because otherwise records with its texts can't be found, or remove it"
            )
    held = covered(mixture.hold_out, corpora)
    if drawn := sorted({leaf.corpus for leaf in mixture.leaves} & held.keys()):
        raise UserError(
            f"mixture {mixture.name}: hold_out covers its own sources {', '.join(drawn)} (twins are held out "
            "together); remove them from `sources`, or from `hold_out`"
        )
    return held


def covered(hold_out: Sequence[str], corpora: Mapping[str, CorpusManifest]) -> dict[str, CorpusManifest]:
    """Return the corpora that `hold_out` names, and their twins."""
    named = {name for name in corpora if any(fnmatchcase(name, wanted) for wanted in hold_out)}
    folders = {corpora[name].dataset or name for name in named}
    twins = {twin for name in named for twin in corpora[name].twins}
    return {
        name: manifest
        for name, manifest in corpora.items()
        if name in named
        or not twins.isdisjoint((name, manifest.dataset))
        or not (named | folders).isdisjoint(manifest.twins)
    }


def held_out(
    connection: duckdb.DuckDBPyConnection,
    held: duckdb.DuckDBPyConnection,
    mixture: Mixture,
    matching: Mapping[str, tuple[str, int]],
) -> pa.Table:
    """Return rows of `DROPPED`, one for each record of the mixture that has a text of a held-out corpus.

    Args:
        connection: a connection to the mixture's corpora.
        held: a connection to the held-out corpora.
        matching: the SQL of each source's records (`FROM ... WHERE ...`) and their number, by name of the source.
    """
    texts = Texts(held)
    rows = []
    total = sum(count for _, count in matching.values())
    queries = (connection.sql(f"SELECT {_COLUMNS}\n{source}") for source, _ in matching.values())
    records = chain.from_iterable(map(_rows, queries))
    for record_id, corpus, split, text, pair in progress(records, total, "held out"):
        if match := texts.find(text, pair):
            rows.append((mixture.name, record_id, corpus, split, *match[:3], "held out", match.kind))
    columns = zip(*rows, strict=True) if rows else ((),) * len(DROPPED)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, DROPPED, strict=True)], schema=DROPPED)


class Texts:
    """An index of the texts of held-out corpora."""

    def __init__(self, held: duckdb.DuckDBPyConnection) -> None:
        self.records: list[tuple[str, str, str, str]] = []  # record_id, corpus, split, normal form
        self.sets: list[set[str]] = []
        seen: set[str] = set()
        for record_id, corpus, split, text, pair in _rows(held.sql(f"SELECT {_COLUMNS} FROM records")):
            for each in _compared(text, pair):
                normal = normal_form(each)
                if normal not in seen:
                    seen.add(normal)
                    self.records.append((record_id, corpus, split, normal))
                    self.sets.append(shingles(each, None))
        self.frequency = Counter(shingle for of_text in self.sets for shingle in of_text)
        self.index: dict[str, list[int]] = defaultdict(list)
        for number, of_text in enumerate(self.sets):
            for shingle in self._prefix(of_text):
                self.index[shingle].append(number)

    def find(self, text: str, pair: str | None) -> Match | None:
        """Return the held-out record that is nearest to a record's text or pair, if it is near enough. An equal
        text is nearer than one with equal shingles."""
        best: tuple[float, bool, int] | None = None
        for each in _compared(text, pair):
            own, normal = shingles(each, None), normal_form(each)
            candidates = {i for shingle in self._prefix(own) for i in self.index.get(shingle, ())}
            for number in sorted(candidates):
                similarity = jaccard(own, self.sets[number])
                found = similarity, self.records[number][-1] == normal
                if similarity >= NEAR and (best is None or found > best[:2]):
                    best = *found, number
        if best is None:
            return None
        _, is_equal, number = best
        return Match(*self.records[number][:3], "exact" if is_equal else "near")

    def _prefix(self, of_text: set[str]) -> list[str]:
        """Return the rarest shingles of a text. Every near text has at least one of them among its own."""
        order = sorted(of_text, key=lambda shingle: (self.frequency[shingle], shingle))
        return order[: len(order) - math.ceil(NEAR * len(order) - 1e-9) + 1]  # in floats, 0.8 * 35 > 28


_COLUMNS = "record_id, corpus::VARCHAR AS corpus, split::VARCHAR AS split, text, pair"


def _rows(relation: duckdb.DuckDBPyRelation) -> Iterator[tuple[str, str, str, str, str | None]]:
    for batch in relation.to_arrow_reader(ROWS):
        yield from zip(*map(pa.Array.to_pylist, batch.columns), strict=True)


def _compared(text: str, pair: str | None) -> Iterator[str]:
    yield text
    if pair and len(words(pair, None)) >= LEAST_WORDS:
        yield pair
