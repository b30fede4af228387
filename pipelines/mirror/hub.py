"""Download datasets of the Hugging Face hub with the `datasets` library, as one Parquet file for each split."""

from __future__ import annotations

import json
import sys
import zlib
from lzma import LZMAError
from pathlib import Path
from tarfile import TarError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import pyarrow.parquet as pq
from blake3 import blake3
from yaml import YAMLError

from pipelines.mirror.local import place
from pipelines.sources.parsing.columns import classes
from ubert.schema.errors import UserError
from ubert.schema.specs.fetch import Fetch

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = 1000  # rows of a batch


def write_splits(fetch: Fetch, specs: Path, folder: Path) -> dict[str, str]:
    """Write the splits into `folder`. Return the hex blake3 of their rows by file name.

    The hash covers the names of classes and the rows as JSON lines, because the bytes of a Parquet file depend on
    the version of its library. The `datasets` library runs no code of a dataset, and retries failed requests.

    Raises:
        UserError: there is no such dataset, config, revision or split, its files can't be read, or the hub
            can't be reached.
    """
    cache = str(folder / "cache")
    try:
        loaded = load(fetch.url, place(fetch, specs), fetch.config, revision=fetch.revision, cache_dir=cache)
    except errors() as error:
        cause = " ".join(str(error).split())
        raise UserError(
            f"{fetch.source}: {cause}; correct the source or `fetch` in the spec, or try again"
        ) from None
    wanted = fetch.splits or sorted(loaded)
    if missing := sorted({*wanted} - {*loaded}):
        raise UserError(f"{fetch.source}: no split {', '.join(missing)}; expected one of {', '.join(loaded)}")
    names = {split: f"{fetch.config}/{split}.parquet" if fetch.config else f"{split}.parquet" for split in wanted}
    return {name: _write(loaded[split], folder / name) for split, name in names.items()}


def errors() -> tuple[type[Exception], ...]:
    """Return the errors of `datasets`, which passes on those of the libraries that read files for it."""
    from datasets.exceptions import DatasetsError

    files = (BadZipFile, TarError, LZMAError, zlib.error, YAMLError, EOFError)
    return (OSError, ValueError, RuntimeError, ImportError, DatasetsError, *files)


def load(url: str, local: Path, config: str | None, **options: Any) -> Any:
    """Return the splits of a dataset of the hub, or of a folder in its layout, which is `local`."""
    import datasets

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    # The prefix keeps the library from using a local folder of the dataset's name.
    path = url.replace("hf://", "hf://datasets/") if url.startswith("hf://") else str(local.absolute())
    return datasets.load_dataset(path, config, **options)


def _write(split: Dataset, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = split.features.arrow_schema
    whole = blake3(json.dumps([*classes(split.features.to_dict())]).encode())
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for table in split.with_format("arrow").iter(ROWS):
            file.write_table(table.cast(schema))
            for row in table.to_pylist():
                whole.update(json.dumps(row, sort_keys=True, default=repr).encode() + b"\n")
    return whole.hexdigest()
