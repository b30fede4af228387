"""Fill the mirror of raw sources, and check what is there against what was fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.mirror import check_upstream, fill, mirror_folder
from pipelines.mirror.record import Fetched
from pipelines.progress import transfer
from pipelines.specs import dataset_spec
from pipelines.store.storage import Place, on_disk
from ubert.schema.errors import UserError
from ubert.schema.spec import DatasetSpec


def fetch(
    names: Sequence[str], *, specs: Path, data: Path | None, root: Place, upstream: bool = False
) -> Iterator[str]:
    """Fetch what is missing of these datasets, and hold all that is there against its hashes, with `upstream` also
    against its sources as they are now; yields what there is to say of each.

    What fails for one dataset doesn't keep the others from being fetched.

    Raises:
        UserError: what went wrong, a line for each dataset; at the end.
    """
    mirror = mirror_folder(data, on_disk(root))
    problems = []
    for spec in [dataset_spec(name, specs) for name in names]:
        try:
            with transfer() as show:
                folder = mirror / spec.folder
                fetched = fill(spec, folder, specs, show, hashed=True) if spec.fetch else {}
                if upstream and fetched:
                    check_upstream(spec, folder, specs, fetched, show)
        except UserError as error:
            problems.append(str(error))
        else:
            yield from _told(spec, fetched, upstream)
    if problems:
        raise UserError("\n".join(problems))


def _told(spec: DatasetSpec, fetched: dict[str, Fetched], upstream: bool) -> Iterator[str]:
    if not fetched:
        unknown = ", so that they were not held against their source" if upstream else ""
        why = (
            f"the files are there, put there by hand{unknown}" if spec.fetch else "its spec names nothing to fetch"
        )
        yield f"{spec.name}: {why}"
    for entry in spec.fetch if fetched else []:
        done = fetched[entry.source]
        size = sum(file.size for file in done.files.values())
        still = ", the same today" if upstream else ""
        yield f"{spec.name}: {entry.source}: {len(done.files)} files, {size:,} bytes, fetched {done.when}{still}"
        if not entry.pinned:
            yield f"it is not pinned yet: put this beside `url: {entry.url}` in {spec.name}.yaml"
            yield f"    blake3: {done.blake3}"
