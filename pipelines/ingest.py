"""Raw sources to corpora: plan, run the units that are not done yet as Ray tasks, write the manifest last."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pipelines.mirror import mirror_folder
from pipelines.progress import transfer
from pipelines.publish import publish
from pipelines.run_unit import run_unit
from pipelines.specs import dataset_spec
from pipelines.store import Store, atomic
from pipelines.tasks import completed
from pipelines.units import Plan, Unit, plan, source_folder
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest
from ubert.schema.spec import DatasetSpec


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
            manifests[name] = publish(store, plans[name], strict)
            report(manifests[name])
        except UserError as error:
            problems[name] = error

    with ExitStack() as locks:
        for name, spec in wanted.items():
            try:
                locks.enter_context(store.working_on("corpora", name))
                with transfer() as show:
                    folder = source_folder(spec, mirror_folder(data, store.root), specs, show)
                plans[name] = plan(spec, folder)
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


def _missing(store: Store, plan: Plan) -> list[tuple[Unit, DatasetSpec, Path]]:
    """The units that are still to do, once those that an earlier state of the corpus shares are linked."""
    directory = store.directory("corpora", plan.spec.name, plan.fingerprint)
    missing = []
    for unit in plan.units:
        beside = (unit.mismatch_part, unit.reject_part)
        if (directory / unit.part).exists() and all((directory / name).exists() for name in beside):
            continue
        earlier = next(directory.parent.glob(f"*/{unit.part}"), None)
        if earlier and all(earlier.with_name(name).exists() for name in beside):
            for name in (*beside, unit.part):
                _link(earlier.with_name(name), directory / name)
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
