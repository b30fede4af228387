"""Ingest raw sources into corpora: plan, run unfinished units as Ray tasks, and write the manifest last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.ingest.hashes import Hashes
from pipelines.ingest.open_categories import counted
from pipelines.ingest.publish import publish
from pipelines.ingest.run_unit import run_unit
from pipelines.ingest.source_files import has_sources, source_folder
from pipelines.ingest.units import Plan, Run, Unit, plan
from pipelines.mirror import mirror_folder
from pipelines.progress import meter, transfer
from pipelines.ray_tasks import DiedError, completed, session
from pipelines.specs import dataset_names, dataset_specs, with_same_rows
from pipelines.store.storage import StorePath, on_disk
from pipelines.store.store import Store, link
from ubert.schema.errors import UserError
from ubert.schema.garbage_collection import collector_paused
from ubert.schema.manifest import CorpusManifest
from ubert.schema.specs.dataset import DatasetSpec


@dataclass(slots=True)
class Work:
    """The files and rows of a corpus that an ingest had to read. The rest was reused."""

    files: int = 0
    rows: int = 0


@collector_paused()  # plans have very many objects; the work itself runs in tasks
def ingest(
    names: Sequence[str],
    *,
    specs: Path,
    data: Path | None,
    root: StorePath,
    address: str | None = None,
    strict: bool = False,
    report: Callable[[CorpusManifest, Work], None] = lambda manifest, work: None,
) -> list[CorpusManifest]:
    """Bring the corpora of these specs up to date, with those under their `also`. A failure in one corpus doesn't
    stop the others.

    Args:
        strict: don't publish a corpus with a rejected row. Its finished units are kept for a later run without
            `strict`.
        report: called with each finished corpus, and with the work that was done for it.

    Raises:
        UserError: a corpus failed; one line for each.
    """
    store = Store(root.absolute())
    manifests: dict[str, CorpusManifest] = {}
    problems: dict[str, UserError] = {}
    wanted = {spec.name: spec for spec in dataset_specs(with_same_rows(names, specs), specs)}
    plans: dict[str, Plan] = {}
    works: dict[str, Work] = {}
    jobs: list[tuple[Unit, DatasetSpec, StorePath]] = []

    def finish(name: str) -> None:
        try:
            manifests[name] = publish(store, plans[name], strict)
            report(manifests[name], works[name])
        except UserError as error:
            problems[name] = error

    with ExitStack() as stack:

        def run(work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
            stack.enter_context(session(address))  # Ray keeps running for the units that follow
            return completed(work, jobs, address)

        for name, spec in wanted.items():
            try:
                stack.enter_context(store.working_on("corpora", name))
                with transfer() as show:
                    folder = source_folder(spec, mirror_folder(data, on_disk(store.root)), specs, show)
                plans[name] = _planned(store, spec, folder, run)
                missing = _missing(store, plans[name])
            except UserError as error:
                problems[name] = error
                continue
            jobs += sorted(missing, key=lambda job: -job[0].packed.size)  # small ones last, to balance the workers
            works[name] = Work(files=_files(missing))
            if not missing:
                finish(name)
        left = Counter(spec.name for _, spec, _ in jobs)
        for name, outcome in _run(jobs, address):
            left[name] -= 1
            if isinstance(outcome, UserError):
                problems.setdefault(name, outcome)
                continue
            works[name].rows += outcome
            if left[name] == 0 and name not in problems:
                finish(name)
    if problems:
        raise UserError("\n".join(str(error) for error in problems.values()))
    return [manifests[name] for name in wanted]


def _planned(store: Store, spec: DatasetSpec, folder: Path, run: Run) -> Plan:
    """Plan an ingest, after counting the categories that the spec takes from the data."""
    memory = store.sources(spec.folder)
    found = plan(spec, folder, Hashes(memory), run)
    if not spec.categories.from_data:
        return found
    known = counted(found, memory.parent)
    return replace(plan(known.spec, folder, Hashes(memory), run), counted=known.counted)


def with_sources(specs: Path, data: Path | None, root: StorePath) -> tuple[list[str], list[str]]:
    """Return the names of datasets whose sources are in the mirror or among the samples, and those of the others.
    If a spec has `fetch`, none of its files may be missing.

    Raises:
        UserError: no dataset has sources, or a spec is wrong.
    """
    mirror = mirror_folder(data, on_disk(root.absolute()))
    here: dict[bool, list[str]] = {True: [], False: []}
    for spec in dataset_specs(dataset_names(specs), specs):
        here[has_sources(spec, mirror, specs)].append(spec.name)
    if not here[True]:
        raise UserError(
            f"{mirror}: none of the {len(here[False])} datasets in {specs} has all its sources here; name the "
            "folder that has the datasets' folders with --data (UBERT_DATA), or fetch sources with `ubert fetch`"
        )
    return here[True], here[False]


def _missing(store: Store, plan: Plan) -> list[tuple[Unit, DatasetSpec, StorePath]]:
    """Link the units that earlier versions of the corpus have, and return jobs for the remaining ones."""
    directory = store.directory("corpora", plan.spec.name, plan.fingerprint)
    there = {(file.parent.name, file.name): file for file in directory.parent.glob("*/*.parquet")}
    anywhere = {name: file for (_, name), file in there.items()}
    missing = []
    for unit in plan.units:
        if unit.part not in anywhere:
            missing.append((unit, plan.spec, directory))
            continue
        for name in (unit.mismatch_part, unit.reject_part, unit.part):  # the part last: it marks the unit as done
            if name in anywhere and (directory.name, name) not in there:
                link(anywhere[name], directory / name)
    return missing


def _files(jobs: Sequence[tuple[Unit, DatasetSpec, StorePath]]) -> int:
    """Count the files that `jobs` read. A file counts once for each split, however many slices it is cut into."""
    in_ranges = {(unit.entry.split, path) for unit, _, _ in jobs for path in unit.packed.in_ranges}
    return len(in_ranges) + sum(unit.packed.whole for unit, _, _ in jobs)


def _run(
    jobs: list[tuple[Unit, DatasetSpec, StorePath]], address: str | None
) -> Iterator[tuple[str, int | UserError]]:
    """Run units as Ray tasks. Yield the corpus of each, and its number of rows or its error."""
    with meter("ingest", sum(unit.packed.size for unit, _, _ in jobs), "rows") as advance:
        for index, outcome in completed(run_unit, jobs, address):
            unit, spec, _ = jobs[index]
            if isinstance(outcome, DiedError):
                outcome = UserError(f"{spec.name}: {unit.slices[0].place}: {outcome}")
            advance(unit.packed.size, 0 if isinstance(outcome, UserError) else outcome)
            yield spec.name, outcome
