"""Drafts of datasets on the Hugging Face hub, from their features and the first rows of each split."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipelines.drafting.draft import Draft, draft, spec_name
from pipelines.drafting.sample import ROWS
from pipelines.mirror.hub import errors, load
from ubert.schema.errors import UserError


def drafted(address: str, config: str | None, name: str | None, specs: Path) -> Draft:
    """Draft a spec for hf://owner/name, or for hf:path, a local folder in the hub's layout. The draft
    reads Parquet files, as `fetch` in the spec will write them.

    Raises:
        UserError: there is no such dataset or config, its files can't be read, or no row becomes a record.
    """
    remote = address.startswith("hf://")
    called = name or spec_name(address.rstrip("/").rpartition("/")[2].removeprefix("hf:"))
    with TemporaryDirectory(prefix="ubert-draft-") as scratch:
        folder = Path(scratch) / called
        try:
            splits = _write_samples(address, config, folder)
        except errors() as error:
            cause = " ".join(str(error).split())[:500]
            raise UserError(
                f"{address}: {cause}; correct the data, the address or --config, or try again"
            ) from None
        made = draft([folder], called, Path(scratch))  # with a config, all files are in a folder of the dataset's
    place = Path(address.removeprefix("hf:"))
    url = address if remote else f"hf:{Path(os.path.relpath(place, specs)).as_posix()}"
    revision = _revision(address) if remote else None
    wanted = {"url": url, "config": config, "revision": revision, "splits": splits}
    made.fetch = {key: item for key, item in wanted.items() if item is not None}
    made.whole = False
    return made


def _write_samples(address: str, config: str | None, folder: Path) -> list[str]:
    """Write the first rows of each split with their features, and return the names of the splits."""
    from datasets import Dataset

    loaded = load(address, Path(address.removeprefix("hf:")), config, streaming=True)
    for split, rows in loaded.items():
        some: list[dict[str, Any]] = list(islice(rows, ROWS))
        target = folder / (f"{config}/{split}.parquet" if config else f"{split}.parquet")
        target.parent.mkdir(parents=True, exist_ok=True)
        Dataset.from_list(some, features=rows.features).to_parquet(target)
    return list(loaded)


def _revision(address: str) -> str | None:
    """Return the dataset's current commit on the hub, or None if it can't be found."""
    import huggingface_hub

    try:
        sha: str | None = huggingface_hub.HfApi().dataset_info(address.removeprefix("hf://")).sha
    except (OSError, ValueError):
        return None
    return sha
