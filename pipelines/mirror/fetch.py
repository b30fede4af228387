"""Fill the mirror of raw sources, and verify its files against their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.mirror import check_upstream, fill, mirror_folder
from pipelines.mirror.record import Fetched
from pipelines.progress import transfer
from pipelines.specs import dataset_specs
from pipelines.store.storage import StorePath, on_disk
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import DatasetSpec


def fetch(
    names: Sequence[str], *, specs: Path, data: Path | None, root: StorePath, upstream: bool = False
) -> Iterator[str]:
    """Download the missing files of datasets, and verify all hashes. Yield lines of output for each dataset.

    With `upstream`, also compare the files with their sources as they are now. A failure in one dataset doesn't
    stop the others.

    Raises:
        UserError: at the end, with a line for each dataset that failed.
    """
    mirror = mirror_folder(data, on_disk(root))
    problems = []
    for spec in dataset_specs(names, specs):
        try:
            with transfer() as show:
                folder = mirror / spec.folder
                fetched = fill(spec, folder, specs, show, hashed=True) if spec.fetch else {}
                if upstream and fetched:
                    check_upstream(spec, folder, specs, fetched, show)
        except UserError as error:
            problems.append(str(error))
        else:
            yield from _report(spec, fetched, upstream)
    if problems:
        raise UserError("\n".join(problems))


def _report(spec: DatasetSpec, fetched: dict[str, Fetched], upstream: bool) -> Iterator[str]:
    if not fetched:
        unknown = ", so they were not compared with their source" if upstream else ""
        why = f"its files were put there by hand{unknown}" if spec.fetch else "its spec names nothing to fetch"
        yield f"{spec.name}: {why}"
    for entry in spec.fetch if fetched else []:
        done = fetched[entry.source]
        size = sum(file.size for file in done.files.values())
        still = ", unchanged at the source" if upstream else ""
        yield f"{spec.name}: {entry.source}: {len(done.files)} files, {size:,} bytes, fetched {done.when}{still}"
        if not entry.pinned:
            yield f"it is not pinned yet: add this line after `url: {entry.url}` in {spec.name}.yaml"
            yield f"    blake3: {done.blake3}"
