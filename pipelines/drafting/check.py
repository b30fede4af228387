"""Compares the categories of a spec with the labels in its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.drafting.categories import Labels, counter
from pipelines.drafting.sample import spec_rows
from pipelines.sources import RawRow
from ubert.schema.specs.dataset import DatasetSpec


class Difference(NamedTuple):
    """A category that is missing in the spec or in the data. `occurs` is its frequency in the data."""

    kind: str
    label: str
    lacking: str  # "spec" or "data"
    occurs: int


def differences(spec: DatasetSpec, folder: Path) -> tuple[list[Difference], int]:
    """Return the categories that only the spec or only the data has, and the number of rows read. Kinds whose
    categories the spec takes from the data have no difference.

    Raises:
        UserError: a file cannot be read.
    """
    found, rows = Labels(), 0
    add = counter(spec.task, spec.map, found)
    for _, _, row in spec_rows(spec, folder, None):
        rows += 1
        if isinstance(row, RawRow):
            add(row.content)
    return [one for one in _all(spec, found) if one.kind not in spec.categories.from_data], rows


def _all(spec: DatasetSpec, found: Labels) -> Iterator[Difference]:
    given = spec.categories
    triggers = {*given.event, *found.event}
    entities = Counter({label: count for label, count in found.entity.items() if label not in triggers})
    yield from _of_kind("label", given.label, found.label)
    yield from _of_kind("entity", given.entity, entities)
    yield from _of_kind("relation", [relation.label for relation in given.relation], found.relation)
    yield from _of_kind("event", given.event, found.event)
    for label, event in given.event.items():
        roles = found.role.get(label, Counter())
        numbered = Counter({role: count for role, count in roles.items() if role})
        yield from _of_kind(f"role of {label}", event.roles, numbered)


def _of_kind(kind: str, given: Iterable[str], found: Counter[str]) -> Iterator[Difference]:
    named = dict.fromkeys(given)
    lacking = [(label, count) for label, count in found.most_common() if label not in named]
    yield from (Difference(kind, label, "spec", count) for label, count in lacking)
    yield from (Difference(kind, label, "data", 0) for label in named if label not in found)
