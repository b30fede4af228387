"""Fill the mirror of raw sources, and check what is there against what was fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.mirror import fill, mirror_folder
from pipelines.mirror.record import Fetched
from pipelines.progress import transfer
from pipelines.specs import dataset_spec
from ubert.schema.errors import UserError
from ubert.schema.spec import DatasetSpec

Report = Callable[[DatasetSpec, dict[str, Fetched]], None]


def fetch(names: Sequence[str], *, specs: Path, data: Path | None, root: Path, report: Report) -> None:
    """Fetch what is missing of these datasets, and hold all that is there against its hashes.

    What fails for one dataset doesn't keep the others from being fetched. `report` is called with each dataset
    that is complete.

    Raises:
        UserError: what went wrong, a line for each dataset.
    """
    mirror = mirror_folder(data, root.absolute())
    problems = []
    for spec in [dataset_spec(name, specs) for name in names]:
        try:
            with transfer() as show:
                fetched = fill(spec, mirror / spec.folder, specs, show, hashed=True) if spec.fetch else {}
        except UserError as error:
            problems.append(str(error))
        else:
            report(spec, fetched)
    if problems:
        raise UserError("\n".join(problems))
