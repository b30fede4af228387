"""Finished units to a corpus: count, check, and write the manifest last."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipelines.store import Store, now
from pipelines.units import Plan
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, CorpusManifest, SourceFile, read_manifest
from ubert.schema.record import RECORD_SCHEMA, REJECT_SCHEMA, Split

COUNTS = b"ubert.counts"  # in the metadata of a unit's part: {path: [kept, rejected]}


def publish(store: Store, plan: Plan, strict: bool) -> CorpusManifest:
    """Make the finished units of a plan the current state of its corpus.

    Raises:
        UserError: a split has no record, an id occurs twice, or `strict` and a row was refused.
    """
    name, directory = plan.spec.name, store.directory("corpora", plan.spec.name, plan.fingerprint)
    _check_strict(plan, directory, strict)
    if (directory / MANIFEST).exists():
        manifest = read_manifest(CorpusManifest, directory)
        if store.current("corpora", name)[0] == directory:
            return manifest
        manifest = manifest.model_copy(update={"created": now()})
    else:
        files = _counted(plan, directory)
        _check_splits(plan, directory, files)
        _check_ids(name, [directory / unit.part for unit in plan.units])
        manifest = CorpusManifest(
            name=name,
            fingerprint=plan.fingerprint,
            created=now(),
            task=plan.spec.task,
            language=plan.spec.language,
            licence=plan.spec.licence,
            licence_class=plan.spec.licence_class or "unstated",
            upstream=plan.spec.upstream.url if plan.spec.upstream else None,
            files=files,
            parts=[unit.part for unit in plan.units],
            reject_parts=[unit.reject_part for unit in plan.units],
            mismatch_parts=[unit.mismatch_part for unit in plan.units],
        )
    store.publish("corpora", manifest)
    return manifest


def _counted(plan: Plan, directory: Path) -> list[SourceFile]:
    """The source files with the rows that their units counted."""
    kept: Counter[tuple[Split, str]] = Counter()
    rejected: Counter[tuple[Split, str]] = Counter()
    for unit in plan.units:
        metadata = pq.read_metadata(directory / unit.part).metadata
        for path, counts in json.loads(metadata[COUNTS]).items():
            kept[unit.entry.split, path] += counts[0]
            rejected[unit.entry.split, path] += counts[1]

    def counted(file: SourceFile) -> SourceFile:
        key = (file.split, file.path)
        counts = {"records": kept[key] + rejected[key], "kept": kept[key], "rejected": rejected[key]}
        return file.model_copy(update=counts)

    return [counted(file) for file in plan.files]


def _check_splits(plan: Plan, directory: Path, files: list[SourceFile]) -> None:
    for split in dict.fromkeys(entry.split for entry in plan.spec.files if entry.labelled):
        of_split = [file for file in files if file.split == split]
        if not any(file.kept for file in of_split):
            rejects = _rejects(plan, directory, split)
            cause = f"every row was refused ({rejects})" if rejects else "it has no rows"
            where = of_split[0].path + (f" and {len(of_split) - 1} more" if len(of_split) > 1 else "")
            raise UserError(
                f"{plan.spec.name}: split {split} would be empty: {where}: {cause}; check the file, and the "
                "spec's format and map, or say `labelled: false` of a file without annotations"
            )


def _rejects(plan: Plan, directory: Path, split: Split | None = None) -> str:
    """How many rows were refused, and the commonest reason with an example; empty where none was."""
    units = [unit for unit in plan.units if split in (None, unit.entry.split)]
    files = [str(directory / unit.reject_part) for unit in units]
    table = ds.dataset(files, schema=REJECT_SCHEMA, format="parquet").to_table()
    if not len(table):
        return ""
    [(reason, number)] = Counter(table["reason"].to_pylist()).most_common(1)
    [first] = table.filter(pc.field("reason") == reason).slice(0, 1).to_pylist()
    return f"{len(table)} in all, {number} of {reason!r}, first {first['path']}:{first['line']}: {first['detail']}"


def _check_ids(name: str, parts: list[Path]) -> None:
    """Equal ids have equal keys: look at ids only where keys repeat."""
    dataset = ds.dataset([str(part) for part in parts], schema=RECORD_SCHEMA, format="parquet")
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


def _check_strict(plan: Plan, directory: Path, strict: bool) -> None:
    if strict and (rejects := _rejects(plan, directory)):
        raise UserError(
            f"{plan.spec.name}: rows were refused and --strict allows none: {rejects}; correct the source or the "
            "spec, or run without --strict"
        )
