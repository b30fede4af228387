"""Publish finished units as a corpus: count, check, and write the manifest last."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.ingest.missing_categories import to_paste, total
from pipelines.ingest.units import Group, Plan, Unit
from pipelines.sources.places import reject_place
from pipelines.store.storage import StorePath, explained, parquet, parquet_file, persistent
from pipelines.store.store import Store, now, parquet_writer
from ubert.schema.errors import UserError
from ubert.schema.manifest import ATTEMPT, FILES, MANIFEST, CorpusManifest, SplitCounts, read_manifest
from ubert.schema.record import FILE_SCHEMA, RECORD_SCHEMA, REJECT_SCHEMA, Split

if TYPE_CHECKING:  # imported late, because it is slow
    import pyarrow.dataset as ds

COUNTS = b"ubert.counts"  # in the metadata of a unit's part: {path: [kept, rejected]}
LACKING = b"ubert.lacking"  # also there: {kind of category: {label that the spec lacks: count}}
NOTICES = b"ubert.notices"  # also there: {warning about its records: count}
UNREADABLE = "unreadable file"  # reason of the reject of a file, or of the rest of one, that can't be read
LARGEST_BUDGET = 0.05  # largest budget that an error suggests; if more rows are rejected, the spec is wrong
KEYS = 1 << 24  # keys that are sorted at once
SUMS = ("bytes", "records", "kept", "rejected")
SUMMED = ["split", "labelled", *SUMS]  # columns of all files (maybe millions) that are held in memory


def publish(store: Store, plan: Plan, strict: bool) -> CorpusManifest:
    """Make the finished units of a plan the current version of its corpus.

    Args:
        strict: allow no rejected row in labelled files, whatever the spec's error budget.

    Raises:
        UserError: a split has no record, more rows were rejected than the budget allows, or an id occurs twice,
            which is a bug of a reader.
    """
    directory = store.directory("corpora", plan.spec.name, plan.fingerprint)
    return persistent(lambda: explained(directory)(_published)(store, plan, directory, strict))


def _published(store: Store, plan: Plan, directory: StorePath, strict: bool) -> CorpusManifest:
    there = {file.name for file in directory.glob("*.parquet")}
    warnings: dict[Split, Counter[str]] = {}
    batches = _files(plan, directory, there, warnings)
    if FILES not in there:
        batches = _written(batches, directory / FILES)
    files = pa.Table.from_batches([batch.select(SUMMED) for batch in batches]).unify_dictionaries()
    manifest = _manifest(plan, files, there, warnings)
    try:
        _check_splits(plan, directory, files)
        _check_budget(plan, directory, files, strict)
    except UserError:
        store.publish("corpora", manifest, ATTEMPT)
        raise
    if (directory / MANIFEST).exists():
        return store.again("corpora", read_manifest(CorpusManifest, directory))
    _check_ids(plan.spec.name, [directory / unit.part for unit in plan.units])
    store.publish("corpora", manifest)
    return manifest


def _manifest(plan: Plan, files: pa.Table, there: set[str], warnings: dict[Split, Counter[str]]) -> CorpusManifest:
    sums = [("labelled", "count"), *((column, "sum") for column in SUMS)]
    splits = files.group_by("split", use_threads=False).aggregate(sums)  # in the order of the files
    return CorpusManifest(
        name=plan.spec.name,
        fingerprint=plan.fingerprint,
        created=now(),
        task=plan.spec.task,
        language=plan.spec.language,
        licence=plan.spec.licence,
        licence_class=plan.spec.licence_class or "unstated",
        dataset=plan.spec.folder,
        twins=plan.spec.twins,
        upstream=plan.spec.upstream.url if plan.spec.upstream else None,
        from_data=plan.counted,
        splits=[
            SplitCounts(
                split=of["split"],
                files=of["labelled_count"],
                **{name: of[f"{name}_sum"] for name in SUMS},
                warnings=dict(warnings[of["split"]].most_common()),
            )
            for of in splits.to_pylist()
        ],
        parts=[unit.part for unit in plan.units],
        reject_parts=[unit.reject_part for unit in plan.units if unit.reject_part in there],
        mismatch_parts=[unit.mismatch_part for unit in plan.units if unit.mismatch_part in there],
    )


def _written(files: Iterator[pa.RecordBatch], place: StorePath) -> Iterator[pa.RecordBatch]:
    with parquet_writer(place, FILE_SCHEMA) as writer:
        for batch in files:
            writer.write_batch(batch)
            yield batch


def _files(
    plan: Plan, directory: StorePath, there: set[str], warnings: dict[Split, Counter[str]]
) -> Iterator[pa.RecordBatch]:
    """Yield the source files of each group with their row counts, and add the warnings of units to `warnings`. The
    metadata of units is read in threads, because an object store answers many requests at once."""

    def counted() -> Iterator[tuple[Unit, bytes]]:
        places = (directory / unit.part for unit in plan.units)
        for unit, found in zip(plan.units, pool.map(_metadata, places), strict=True):
            warnings.setdefault(unit.entry.split, Counter()).update(json.loads(found[NOTICES]))
            yield unit, found[COUNTS]

    with ThreadPoolExecutor() as pool:
        counts = counted()
        for group in plan.groups:
            yield _of_group(plan, group, directory, counts, there)


def _metadata(part: StorePath) -> dict[bytes, bytes]:
    cure = f"delete {part.parent.parent}/*/{part.name}, because versions share it, and run the same command again"
    with parquet_file(part, cure) as file:
        return file.metadata.metadata  # type: ignore[no-any-return]


def _of_group(
    plan: Plan, group: Group, directory: StorePath, counted: Iterator[tuple[Unit, bytes]], there: set[str]
) -> pa.RecordBatch:
    """Sum the row counts of a group's files, which several units may have read. The group's units are the next
    items of `counted`."""
    rows: dict[str, tuple[int, int]] = {}
    for unit, counts in islice(counted, len(group.units)):
        of_unit = msgspec.json.decode(counts, type=dict[str, tuple[int, int]])
        _check_rejects(directory, unit, sum([rejected for _, rejected in of_unit.values()]), there)
        for path in rows.keys() & of_unit.keys():
            of_unit[path] = (rows[path][0] + of_unit[path][0], rows[path][1] + of_unit[path][1])
        rows |= of_unit
    paths, sizes, shas = group.files
    kept, rejected = ([rows[path][i] for path in paths] for i in (0, 1))
    same = [pa.repeat(value, len(paths)) for value in (plan.spec.name, group.entry.split, group.entry.labelled)]
    records = pc.add(pa.array(kept, pa.int64()), pa.array(rejected, pa.int64()))
    columns = [*same, paths, shas, sizes, records, kept, rejected]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, FILE_SCHEMA, strict=True)],
        schema=FILE_SCHEMA,
    )


def _check_rejects(directory: StorePath, unit: Unit, rejected: int, there: set[str]) -> None:
    """Check that the file of a unit's rejects still exists, so that no rejected row is lost."""
    if rejected and unit.reject_part not in there:
        raise UserError(
            f"{directory / unit.reject_part}: missing, and with it {rejected:,} rejected rows; delete {unit.part} "
            "in the same folder and run again"
        )


def _labelled(plan: Plan, files: pa.Table, split: Split) -> tuple[list[Unit], pa.Table]:
    """Return the units of a split's labelled files, and these files."""
    units = [unit for unit in plan.units if unit.entry.split == split and unit.entry.labelled]
    return units, files.filter((pc.field("split") == split) & pc.field("labelled"))


def _paths(directory: StorePath, split: Split, which: pc.Expression) -> pa.ChunkedArray:
    """Return the paths of a split's labelled files for which `which` is true."""
    within = (pc.field("split") == split) & pc.field("labelled") & which
    return parquet([directory / FILES], FILE_SCHEMA).to_table(columns=["path"], filter=within)["path"]


def _check_splits(plan: Plan, directory: StorePath, files: pa.Table) -> None:
    for split in dict.fromkeys(entry.split for entry in plan.spec.files if entry.labelled):
        units, of_split = _labelled(plan, files, split)
        if not pc.any(pc.greater(of_split["kept"], 0)).as_py():
            rejected = pc.any(pc.greater(of_split["rejected"], 0)).as_py()
            cause = f"every row was rejected: {_reasons(directory, units)}" if rejected else "it has no rows"
            others = f" and {len(of_split) - 1} more" if len(of_split) > 1 else ""
            first = _paths(directory, split, pc.scalar(True))[0]
            raise UserError(
                f"{plan.spec.name}: split {split} would be empty: {first}{others}: {cause}; check the file, "
                "and the spec's format and map, or set `labelled: false` for a file without annotations"
                f"{_lacking(directory, units)}"
            )


def _check_budget(plan: Plan, directory: StorePath, files: pa.Table, strict: bool) -> None:
    """Check the error budget for the rejected rows of a split, and for its files that are lost: they have no kept
    row, or could not be read to their end. Files count separately, because however many rows an unreadable file
    has, it is only one reject."""
    budget = 0.0 if strict else plan.spec.error_budget
    for split in dict.fromkeys(unit.entry.split for unit in plan.units):
        units, of_split = _labelled(plan, files, split)
        records, rejected = (pc.sum(of_split[column], min_count=0).as_py() for column in ("records", "rejected"))
        lost_files = _lost_files(directory, units, split) if rejected else []
        for lost, every, what, paths in (
            (rejected, records, "rows were rejected", None),
            (len(lost_files), len(of_split), "files were rejected completely or partly", lost_files),
        ):
            if lost <= budget * every:
                continue
            enough = math.ceil(lost / every * 100) / 100
            allowed, cure = "its error budget", "correct the source or its spec"
            if strict:
                allowed, cure = "--strict", f"{cure}, or run without --strict"
            elif enough <= LARGEST_BUDGET:
                cure += f", or set `error_budget: {enough:g}` in the spec"
            raise UserError(
                f"{plan.spec.name}: split {split}: {lost:,} of {every:,} {what}, {lost / every:.2%}, "
                f"and {allowed} allows {budget:.2%}: {_reasons(directory, units, paths)}{_named(paths)}; "
                f"`ubert rejects {plan.spec.name}` shows the rows, from {directory}/rejects-*.parquet; "
                f"{cure}{_lacking(directory, units)}"
            )


def _lost_files(directory: StorePath, units: Sequence[Unit], split: Split) -> list[str]:
    """Return the paths of a split's files without a kept row, and of those that could not be read to their end."""
    barren = _paths(directory, split, (pc.field("rejected") > 0) & (pc.field("kept") == 0))
    broken = _rejects(directory, units).to_table(columns=["path"], filter=pc.field("reason") == UNREADABLE)["path"]
    return sorted({*barren.to_pylist(), *broken.unique().to_pylist()})


def _named(paths: Sequence[str] | None, most: int = 20) -> str:
    """List the files that are lost."""
    if paths is None:
        return ""
    others = f" and {len(paths) - most:,} more" if len(paths) > most else ""
    return f"; the files: {', '.join(paths[:most])}{others}"


def _rejects(directory: StorePath, units: Sequence[Unit]) -> ds.Dataset:
    files = [directory / unit.reject_part for unit in units]
    return parquet([file for file in files if file.exists()], REJECT_SCHEMA)


def _reasons(directory: StorePath, units: Sequence[Unit], paths: Sequence[str] | None = None) -> str:
    """Describe the most common reasons of rejects (in these files), each with its first row."""
    wanted = None if paths is None else pc.field("path").isin(pa.array(paths, pa.string()))
    columns = ["reason", "path", "line", "detail"]  # raw rows may be long
    table = _rejects(directory, units).to_table(columns=columns, filter=wanted)
    common = Counter(table["reason"].to_pylist()).most_common(3)
    described = []
    for reason, number in common:
        [first] = table.filter(pc.field("reason") == reason).slice(0, 1).to_pylist()
        place, detail = reject_place(first["path"], first["line"], first["detail"])
        described.append(f"{number:,} {reason!r}, first {place}: {detail}")
    others = len(table) - sum(number for _, number in common)
    return "; ".join(described) + (f"; {others:,} for other reasons" if others else "")


def _lacking(directory: StorePath, units: Sequence[Unit]) -> str:
    """Return YAML for the labels that the spec lacks, on new lines."""
    found = to_paste(total([json.loads(_metadata(directory / unit.part)[LACKING]) for unit in units]))
    return f"\n{found}" if found else ""


def _check_ids(name: str, parts: Sequence[StorePath]) -> None:
    """Check that no record id occurs twice. Equal ids have equal keys, so only ids of repeated keys are compared.
    Keys are uniformly distributed, so equal ranges have about the same number of keys."""
    dataset = parquet(parts, RECORD_SCHEMA)
    ranges = dataset.count_rows() // KEYS + 1
    bounds = [pa.scalar(2**64 * at // ranges - (at == ranges), pa.uint64()) for at in range(ranges + 1)]
    repeated = []
    for first, last in pairwise(bounds):
        within = (pc.field("key") >= first) & (pc.field("key") <= last)  # neighbouring ranges share a bound
        keys = np.sort(dataset.to_table(columns=["key"], filter=within)["key"].to_numpy())
        repeated += np.unique(keys[1:][keys[1:] == keys[:-1]]).tolist()
    if not repeated:
        return
    among = pc.field("key").isin(pa.array(repeated, pa.uint64()))
    ids = dataset.to_table(columns=["record_id"], filter=among)["record_id"].to_pylist()
    twice = sorted(record_id for record_id, count in Counter(ids).items() if count > 1)
    if twice:
        raise UserError(
            f"{name}: {len(twice)} record ids occur more than once, such as {twice[0]!r}: its format gave two "
            "rows the same locator, which is a bug in ubert; please report it, with the spec"
        )
