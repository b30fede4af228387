"""Collect the categories that a spec takes from its data (`label: from_data`), in a pass before the mapping.

The labels are cached until the files or the spec change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from pipelines.ingest.run_unit import mapped
from pipelines.ingest.units import Plan
from pipelines.mapping.missing_labels import Census, merged
from pipelines.store.storage import StorePath
from pipelines.store.store import read_json, write_json
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import DatasetSpec

MAX_LABELS = 1_000  # labels of a kind; every record has all of them as candidates


def counted(plan: Plan, memory: StorePath) -> Plan:
    """Fill in the open categories of a plan's spec, and add the count of each. `memory` is the folder of cached
    counts.

    Raises:
        UserError: there are no labels, or more than a record can have as candidates.
    """
    place = memory / f"{plan.spec.name}-{plan.fingerprint}.categories.json"
    if place.exists():
        found: dict[str, dict[str, int]] = read_json(place)
    else:
        census = merged([_census(plan)])
        found = {kind: dict(sorted(census.get(kind, {}).items())) for kind in plan.spec.categories.from_data}
        write_json(place, found)
    for kind, labels in found.items():
        _check(plan.spec, kind, list(labels))
    categories = plan.spec.categories.filled({kind: list(labels) for kind, labels in found.items()})
    spec = plan.spec.model_copy(update={"categories": categories})
    return replace(plan, spec=spec, counted=found)


def _census(plan: Plan) -> Census:
    """Count the labels of all rows of labelled files, as the ingest will read them."""
    found = Census()
    for unit in plan.units:
        if unit.entry.labelled:
            for _ in mapped(unit, unit.slices, plan.spec, Counter(), found, lambda misplaced: None):
                pass
    return found


def _check(spec: DatasetSpec, kind: str, labels: list[str]) -> None:
    if not labels:
        raise UserError(f"{spec.name}: categories.{kind}: from_data, but the data has no {kind}; correct `map`")
    if len(labels) > MAX_LABELS:
        raise UserError(
            f"{spec.name}: categories.{kind}: from_data, but the data has {len(labels):,} different ones, such as "
            f"{', '.join(labels[:5])}; a record can have {MAX_LABELS:,} candidates: list the categories, or map "
            "`candidates`"
        )
