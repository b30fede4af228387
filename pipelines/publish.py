"""Finished units to a corpus: count, check, and write the manifest last."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.place import Place, arrow, explained, parquet, persistent
from pipelines.store import Store, now
from pipelines.units import Plan, Unit
from ubert.schema.errors import UserError
from ubert.schema.manifest import ATTEMPT, MANIFEST, CorpusManifest, SourceFile, read_manifest
from ubert.schema.record import RECORD_SCHEMA, REJECT_SCHEMA, Split

COUNTS = b"ubert.counts"  # in the metadata of a unit's part: {path: [kept, rejected]}


def publish(store: Store, plan: Plan, strict: bool) -> CorpusManifest:
    """Make the finished units of a plan the current state of its corpus.

    `strict`: no row of a labelled file may be refused, whatever the spec's error budget.

    Raises:
        UserError: a split has no record, an id occurs twice, or more rows were refused than the budget allows.
    """
    directory = store.directory("corpora", plan.spec.name, plan.fingerprint)

    @explained(directory)
    def published() -> CorpusManifest:
        return _published(store, plan, directory, strict)

    return persistent(published)


def _published(store: Store, plan: Plan, directory: Place, strict: bool) -> CorpusManifest:
    counts = _counts(plan, directory)
    there = {file.name for file in directory.glob("*.parquet")}
    _check_rejects(plan, directory, counts, there)
    try:
        _check_splits(plan, directory, counts)
        _check_budget(plan, directory, counts, strict)
    except UserError:
        store.publish("corpora", _manifest(plan, counts, there), ATTEMPT)
        raise
    if (directory / MANIFEST).exists():
        return store.again("corpora", read_manifest(CorpusManifest, directory))
    _check_ids(plan.spec.name, [directory / unit.part for unit in plan.units])
    manifest = _manifest(plan, counts, there)
    store.publish("corpora", manifest)
    return manifest


def _manifest(plan: Plan, counts: Counts, there: set[str]) -> CorpusManifest:
    return CorpusManifest(
        name=plan.spec.name,
        fingerprint=plan.fingerprint,
        created=now(),
        task=plan.spec.task,
        language=plan.spec.language,
        licence=plan.spec.licence,
        licence_class=plan.spec.licence_class or "unstated",
        upstream=plan.spec.upstream.url if plan.spec.upstream else None,
        files=_counted(plan, counts),
        parts=[unit.part for unit in plan.units],
        reject_parts=[unit.reject_part for unit in plan.units if unit.reject_part in there],
        mismatch_parts=[unit.mismatch_part for unit in plan.units if unit.mismatch_part in there],
    )


Rows = dict[str, tuple[int, int]]  # path -> (kept, rejected)
Counts = list[Rows]  # of each unit


def _counts(plan: Plan, directory: Place) -> Counts:
    """What the units counted; files of an object store are asked several at a time."""

    def of_unit(unit: Unit) -> Rows:
        path, filesystem = arrow(directory / unit.part)
        return json.loads(pq.read_metadata(path, filesystem=filesystem).metadata[COUNTS])  # type: ignore[no-any-return]

    with ThreadPoolExecutor() as pool:
        return list(pool.map(of_unit, plan.units))


def _counted(plan: Plan, counts: Counts) -> list[SourceFile]:
    """The source files with the rows that their units counted."""
    units = list(zip(plan.units, counts, strict=True))
    rows: dict[Split, Rows] = {
        split: _by_file(of_unit for unit, of_unit in units if unit.entry.split == split)
        for split in {unit.entry.split for unit in plan.units}
    }
    found = []
    for entry, (path, size, sha) in plan.files:
        kept, rejected = rows[entry.split][path]
        found.append(SourceFile(path, entry.split, sha, size, kept + rejected, kept, rejected))
    return found


def _by_file(counts: Iterable[Rows]) -> Rows:
    """What units counted in all: several may have read the same file."""
    rows: Rows = {}
    for of_unit in counts:
        for path, (taken, refused) in of_unit.items():
            kept, rejected = rows.get(path, (0, 0))
            rows[path] = kept + taken, rejected + refused
    return rows


def _of_split(plan: Plan, counts: Counts, split: Split) -> tuple[list[Unit], Rows]:
    """The units of a split's labelled files, and how many rows of each file were kept and rejected."""
    found = [
        (unit, of_unit)
        for unit, of_unit in zip(plan.units, counts, strict=True)
        if unit.entry.split == split and unit.entry.labelled
    ]
    return [unit for unit, _ in found], _by_file(of_unit for _, of_unit in found)


def _check_rejects(plan: Plan, directory: Place, counts: Counts, there: set[str]) -> None:
    """Refused rows are never lost: what a unit counted, it wrote."""
    for unit, of_unit in zip(plan.units, counts, strict=True):
        refused = sum(rejected for _, rejected in of_unit.values())
        if refused and unit.reject_part not in there:
            raise UserError(
                f"{directory / unit.reject_part}: it is gone, with {refused:,} refused rows; remove {unit.part} "
                "beside it and run again"
            )


def _check_splits(plan: Plan, directory: Place, counts: Counts) -> None:
    for split in dict.fromkeys(entry.split for entry in plan.spec.files if entry.labelled):
        units, rows = _of_split(plan, counts, split)
        if not any(kept for kept, _ in rows.values()):
            paths = [piece.path for unit in units for piece in unit.slices]
            rejected = any(rejected for _, rejected in rows.values())
            cause = f"every row was refused: {_reasons(directory, units)}" if rejected else "it has no rows"
            where = paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
            raise UserError(
                f"{plan.spec.name}: split {split} would be empty: {where}: {cause}; check the file, and the "
                "spec's format and map, or say `labelled: false` of a file without annotations"
            )


def _check_budget(plan: Plan, directory: Place, counts: Counts, strict: bool) -> None:
    """Hold against the budget the refused rows of a split, and the files of which no row was kept: one that cannot
    be read is a single reject, whatever is in it."""
    budget = 0.0 if strict else plan.spec.error_budget
    for split in dict.fromkeys(unit.entry.split for unit in plan.units):
        units, of_files = _of_split(plan, counts, split)
        kept, rejected = (sum(rows[i] for rows in of_files.values()) for i in (0, 1))
        barren = {path for path, (taken, refused) in of_files.items() if refused and not taken}
        for lost, every, what, paths in (
            (rejected, kept + rejected, "rows were refused", None),
            (len(barren), len(of_files), "files were refused whole", barren),
        ):
            if lost <= budget * every:
                continue
            enough = math.ceil(lost / every * 100) / 100
            allowed, cure = "its error budget", f"state `error_budget: {enough:g}` in the spec"
            if strict:
                allowed, cure = "--strict", "run without --strict"
            raise UserError(
                f"{plan.spec.name}: split {split}: {lost:,} of {every:,} {what}, {lost / every:.2%}, "
                f"and {allowed} allows {budget:.2%}: {_reasons(directory, units, paths)}; "
                f"`ubert rejects {plan.spec.name}` shows the rows, of {directory}/rejects-*.parquet; "
                f"mend the source or its spec, or {cure}"
            )


def _reasons(directory: Place, units: Sequence[Unit], paths: Collection[str] | None = None, most: int = 3) -> str:
    """The commonest reasons for which rows (of these files) were refused, each with its first row."""
    files = [directory / unit.reject_part for unit in units]
    wanted = None if paths is None else pc.field("path").isin(list(paths))
    table = parquet([file for file in files if file.exists()], REJECT_SCHEMA).to_table(filter=wanted)
    counted = Counter(table["reason"].to_pylist())
    said = []
    for reason, number in counted.most_common(most):
        [first] = table.filter(pc.field("reason") == reason).slice(0, 1).to_pylist()
        said.append(f"{number:,} {reason!r}, first {first['path']}:{first['line']}: {first['detail']}")
    others = len(table) - sum(number for _, number in counted.most_common(most))
    return "; ".join(said) + (f"; {others:,} for other reasons" if others else "")


def _check_ids(name: str, parts: Sequence[Place]) -> None:
    """Equal ids have equal keys: look at ids only where keys repeat."""
    dataset = parquet(parts, RECORD_SCHEMA)
    keys = np.sort(dataset.to_table(columns=["key"])["key"].to_numpy())
    repeated = np.unique(keys[1:][keys[1:] == keys[:-1]])
    if len(repeated) == 0:
        return
    ids = dataset.to_table(columns=["record_id"], filter=pc.field("key").isin(repeated))["record_id"].to_pylist()
    twice = sorted(record_id for record_id, count in Counter(ids).items() if count > 1)
    if twice:
        raise UserError(
            f"{name}: {len(twice)} record ids occur more than once, such as {twice[0]!r}; "
            "map `id` to a field that is unique in its split, or leave it out"
        )
