"""Raw sources to corpora: plan, run the units that are not done yet as Ray tasks, write the manifest last."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pipelines.mapping import mapper
from pipelines.sources import reader
from pipelines.specs import dataset_spec, file_options
from pipelines.store import Store, atomic, now
from pipelines.tasks import completed
from pipelines.units import Plan, Unit, check_unchanged, plan, source_folder
from ubert.schema.arrow import records_to_batch, rejects_to_batch
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, CorpusManifest, SourceFile, read_manifest
from ubert.schema.record import RECORD_SCHEMA, REJECT_SCHEMA, Record, Reject, Split
from ubert.schema.spec import DatasetSpec

CHUNK = 10_000  # rows that are built into columns at a time
_COUNTS = b"ubert.counts"  # in a part's metadata: {path: [kept, rejected]}


def ingest(
    names: Sequence[str],
    *,
    specs: Path,
    data: Path | None,
    root: Path,
    address: str | None = None,
    strict: bool = False,
    report: Callable[[CorpusManifest], None] = lambda manifest: None,
) -> list[CorpusManifest]:
    """Bring the corpora of these names up to date; `report` is called with each one as it is done.

    What fails in one corpus doesn't keep the others from being made. With `strict`, a corpus with a refused row is
    not published; its finished units are kept, so that nothing is read again without `strict`.

    Raises:
        UserError: what went wrong, a line for each corpus.
    """
    store = Store(root.absolute())
    manifests: dict[str, CorpusManifest] = {}
    problems: dict[str, UserError] = {}
    wanted = {name: dataset_spec(name, specs) for name in names}
    plans: dict[str, Plan] = {}
    jobs: list[tuple[Unit, DatasetSpec, Path]] = []

    def finish(name: str) -> None:
        try:
            manifests[name] = _publish(store, plans[name], strict)
            report(manifests[name])
        except UserError as error:
            problems[name] = error

    with ExitStack() as locks:
        for name, spec in wanted.items():
            try:
                locks.enter_context(store.working_on("corpora", name))
                plans[name] = plan(spec, source_folder(spec, data, specs))
                missing = _missing(store, plans[name])
            except UserError as error:
                problems[name] = error
                continue
            jobs += missing
            if not missing:
                finish(name)
        left = Counter(spec.name for _, spec, _ in jobs)
        for name, problem in _run(jobs, address):
            left[name] -= 1
            if problem:
                problems.setdefault(name, problem)
            elif left[name] == 0 and name not in problems:
                finish(name)
    if problems:
        raise UserError("\n".join(str(error) for error in problems.values()))
    return [manifests[name] for name in wanted]


def run_unit(unit: Unit, spec: DatasetSpec, directory: Path) -> int:
    """Read, map and write one unit; returns the number of rows read.

    The part appears last and whole, with its rejects beside it: a unit is done when its part is there.

    Raises:
        UserError: a source file cannot be read or has changed, or the store cannot be written.
    """
    counts: dict[str, list[int]] = {piece.path: [0, 0] for piece in unit.slices}
    with (
        atomic(directory / _part(unit)) as part,
        atomic(directory / _reject_part(unit)) as reject_part,
        pq.ParquetWriter(part, RECORD_SCHEMA, compression="zstd") as kept_file,
        pq.ParquetWriter(reject_part, REJECT_SCHEMA, compression="zstd") as rejects_file,
    ):
        rows = _rows(unit, spec)
        while chunk := list(islice(rows, CHUNK)):
            kept = [row for row in chunk if isinstance(row, Record)]
            rejects = [row for row in chunk if isinstance(row, Reject)]
            for record in kept:
                counts[record.source.path][0] += 1
            for reject in rejects:
                counts[reject.path][1] += 1
            if kept:
                kept_file.write_batch(records_to_batch(kept))
            if rejects:
                rejects_file.write_batch(rejects_to_batch(rejects, spec.name, unit.entry.split))
        kept_file.add_key_value_metadata({_COUNTS: json.dumps(counts)})
    return sum(map(sum, counts.values()))


def _rows(unit: Unit, spec: DatasetSpec) -> Iterator[Record | Reject]:
    read, options = reader(spec.format).read, file_options(spec, unit.entry)
    for piece in unit.slices:
        check_unchanged(piece, spec, unit.entry)
        to_record = mapper(spec, unit.entry.split, piece)
        for row in read(piece, options):
            yield row if isinstance(row, Reject) else to_record(row)


def _missing(store: Store, plan: Plan) -> list[tuple[Unit, DatasetSpec, Path]]:
    """The units that are still to do, once those that an earlier state of the corpus shares are linked."""
    directory = store.directory("corpora", plan.spec.name, plan.fingerprint)
    missing = []
    for unit in plan.units:
        if (directory / _part(unit)).exists() and (directory / _reject_part(unit)).exists():
            continue
        earlier = next(directory.parent.glob(f"*/{_part(unit)}"), None)
        if earlier and (rejects := earlier.with_name(_reject_part(unit))).exists():
            _link(rejects, directory / rejects.name)
            _link(earlier, directory / earlier.name)
        else:
            missing.append((unit, plan.spec, directory))
    return missing


def _link(old: Path, new: Path) -> None:
    with atomic(new) as temporary:
        try:
            os.link(old, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(old, temporary)


def _run(
    jobs: list[tuple[Unit, DatasetSpec, Path]], address: str | None
) -> Iterator[tuple[str, UserError | None]]:
    """Run units as Ray tasks under a progress bar; yield each one's corpus and what went wrong with it."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows, {task.fields[rate]:,.0f} rows/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (jobs and sys.stderr.isatty()),
    )
    start, rows = time.monotonic(), 0
    with bar:
        task = bar.add_task("ingest", total=sum(unit.size for unit, _, _ in jobs), rows=0, rate=0.0)
        for index, outcome in completed(run_unit, jobs, address):
            unit, spec, _ = jobs[index]
            rows += outcome if isinstance(outcome, int) else 0
            rate = rows / (time.monotonic() - start)
            bar.update(task, advance=unit.size, rows=rows, rate=rate, description=spec.name)
            yield spec.name, outcome if isinstance(outcome, UserError) else None


def _publish(store: Store, plan: Plan, strict: bool) -> CorpusManifest:
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
        _check_ids(name, [directory / _part(unit) for unit in plan.units])
        manifest = CorpusManifest(
            name=name,
            fingerprint=plan.fingerprint,
            created=now(),
            task=plan.spec.task,
            language=plan.spec.language,
            licence=plan.spec.licence,
            upstream=plan.spec.upstream.url if plan.spec.upstream else None,
            files=files,
            parts=[_part(unit) for unit in plan.units],
            reject_parts=[_reject_part(unit) for unit in plan.units],
        )
    store.publish("corpora", manifest)
    return manifest


def _counted(plan: Plan, directory: Path) -> list[SourceFile]:
    """The source files with the rows that their units counted."""
    kept: Counter[tuple[Split, str]] = Counter()
    rejected: Counter[tuple[Split, str]] = Counter()
    for unit in plan.units:
        metadata = pq.read_metadata(directory / _part(unit)).metadata
        for path, counts in json.loads(metadata[_COUNTS]).items():
            kept[unit.entry.split, path] += counts[0]
            rejected[unit.entry.split, path] += counts[1]

    def counted(file: SourceFile) -> SourceFile:
        key = (file.split, file.path)
        counts = {"records": kept[key] + rejected[key], "kept": kept[key], "rejected": rejected[key]}
        return file.model_copy(update=counts)

    return [counted(file) for file in plan.files]


def _check_splits(plan: Plan, directory: Path, files: list[SourceFile]) -> None:
    for split in dict.fromkeys(file.split for file in files):
        of_split = [file for file in files if file.split == split]
        if not any(file.kept for file in of_split):
            rejects = _rejects(plan, directory, split)
            cause = f"every row was refused ({rejects})" if rejects else "it has no rows"
            where = of_split[0].path + (f" and {len(of_split) - 1} more" if len(of_split) > 1 else "")
            raise UserError(
                f"{plan.spec.name}: split {split} would be empty: {where}: {cause}; check the file, and the "
                "spec's format and map"
            )


def _rejects(plan: Plan, directory: Path, split: Split | None = None) -> str:
    """How many rows were refused, and the commonest reason with an example; empty where none was."""
    units = [unit for unit in plan.units if split in (None, unit.entry.split)]
    files = [str(directory / _reject_part(unit)) for unit in units]
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


def _part(unit: Unit) -> str:
    return f"part-{unit.name}.parquet"


def _reject_part(unit: Unit) -> str:
    return f"rejects-{unit.name}.parquet"
