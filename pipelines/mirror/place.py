"""Move the files of a finished download into the dataset's folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pipelines.mirror.download import Staged
from pipelines.mirror.record import Fetched, write_record
from pipelines.sources import file_hash
from pipelines.specs import readable_specs
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.fetch import Fetch


def abandoned(spec: DatasetSpec, specs: Path, record: dict[str, Fetched]) -> set[str]:
    """Return the recorded sources that no spec of the dataset's folder names any more."""
    found = record.keys() - {fetch.source for fetch in spec.fetch}
    if found:
        sharing = [other for other in readable_specs(specs)[0] if other.folder == spec.folder]
        found -= {fetch.source for other in sharing for fetch in other.fetch}
    return found


def place(
    fetch: Fetch, folder: Path, files: dict[str, Staged], record: dict[str, Fetched], gone: Collection[str]
) -> None:
    """Move files into place. They replace the files of earlier versions of the download as a whole, unless these
    were changed by hand; the earlier versions leave the record.

    Args:
        gone: sources that no spec names any more. They are earlier versions if they have one of these files.

    Raises:
        UserError: a file would overwrite one that is not of an earlier version, or was changed.
    """
    earlier = {
        source
        for source, then in record.items()
        if source == fetch.source or (source in gone and not then.files.keys().isdisjoint(files))
    }
    old = {(name, then.blake3) for source in earlier for name, then in record[source].files.items()}
    of_others = {name for source, then in record.items() if source not in earlier for name in then.files}
    moving = {name: staged for name, staged in files.items() if staged.path != folder / name}
    for name, staged in moving.items():
        target = folder / name
        here = file_hash(target) if target.is_file() else None
        replaceable = here == staged.blake3 or ((name, here) in old and name not in of_others)
        if target.exists() and not replaceable:
            raise UserError(
                f"{target}: fetching {fetch.source} would overwrite it; move it to another folder, or give the "
                "download a folder of its own with `into`"
            )
    if moving:
        write_record(folder, record)  # the folder no longer counts as filled by hand
    for name, staged in moving.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        staged.path.replace(folder / name)
    for name, hash_ in old:
        path = folder / name
        if name not in files and name not in of_others and path.is_file() and file_hash(path) == hash_:
            path.unlink()
    for source in earlier:
        del record[source]
