"""Find a checkpoint by what a user calls it."""

from __future__ import annotations

from pathlib import Path

from pipelines.store.storage import ObjectPath, StorePath, on_disk
from ubert.model import pretrained
from ubert.schema.disk import is_folder
from ubert.schema.errors import UserError
from ubert.schema.names import is_name


def find_checkpoint(given: Path, root: StorePath) -> Path:
    """Find the folder of a checkpoint or run: `given` itself, a run of the store, or a packaged model.

    Raises:
        UserError: `given` is none of these.
    """
    homes = (on_disk(root) / "runs", pretrained.FOLDER) if all(map(is_name, given.parts)) else ()
    if homes and isinstance(root, ObjectPath) and not is_folder(given):
        # Imported here, because a checkpoint on the disk doesn't need them, and a server then starts sooner.
        from pipelines.training.remote_run import pull, run_in

        pull(run_in(root, given.parts[0]), homes[0] / given.parts[0])
    for folder in (given, *(home / given for home in homes)):
        if is_folder(folder):
            return folder
    runs = {path.name for path in homes[0].glob("*/")} if homes else set()
    runs |= {path.parent.name for path in (root / "runs").glob("*/recipe.yaml")}
    raise UserError(
        f"{given}: neither a folder nor a run of the store {str(root)!r}; its runs: "
        f"{', '.join(sorted(runs)) or 'none'}; models of the package: {', '.join(pretrained.names())}"
    )
