"""Coverage-guided fuzzing of readers and mappings with atheris: `make fuzz SECONDS=3600`.

For every spec, the reader of its format and its mapping run over mutations of a seed: a small prefix of the
dataset's own files that yields a record (`fuzz_seeds.py`). Allowed results are rows, each a record or a reject
that Arrow can store, or one `UserError`. Other exceptions, hangs, and different rows when a file is split where
its format allows it are failures. The last line about a failed spec names the folder of the failing input.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from fuzz_seeds import LIMITS, seed

BREAK = b"\x00\xff\x00"  # separates the bytes of a file from those of its companions
TRIED = 10  # maximum source files to try


def main() -> None:
    """Fuzz the named specs, or all, and divide the time equally among them."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("specs", nargs="*", help="names of datasets (default: all)")
    arguments.add_argument("--seconds", type=int, default=3600, help="for all specs together")
    arguments.add_argument("--data", type=Path, default=Path(os.environ.get("UBERT_DATA", "../shared/data")))
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    arguments.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        fuzz(given.one, given.data, given.folder, given.seconds)
        return
    from pipelines.specs import dataset_names, specs_folder

    names = given.specs or dataset_names(specs_folder(None))
    each = max(1, given.seconds // len(names))
    failed = []
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
        command = [sys.executable, __file__, "--one", name, "--data", str(given.data), "--folder", str(folder)]
        start = time.monotonic()
        done = subprocess.run([*command, "--seconds", str(each)], capture_output=True, text=True, check=False)
        counted = re.search(r"Done (\d+) runs", done.stderr)
        runs = counted[1] if counted else "unknown"
        print(f"{name}: {runs} runs in {time.monotonic() - start:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
            print(
                done.stdout[-4000:], done.stderr[-1000:], f"\n{name} failed; its input is in {folder}", flush=True
            )
    sys.exit(f"{len(failed)} failed: {', '.join(failed)}" if failed else 0)


def fuzz(name: str, data: Path, folder: Path, seconds: int) -> None:
    """Fuzz one spec in this process."""
    import atheris

    with atheris.instrument_imports(include=["pipelines", "ubert"]):
        from pipelines import mapping, sources  # noqa: F401
        from pipelines.specs import dataset_spec, specs_folder

        spec = dataset_spec(name, specs_folder(None))
        sources.reader(spec.format)
    begun, beside = seed_sources(spec, data, specs_folder(None))
    check = checker(spec, folder, beside)
    seeds = folder / "seeds"
    seeds.mkdir()
    (seeds / "0").write_bytes(seed(begun, spec.files[0].encoding, BREAK, check))
    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=3000", f"-max_len={2 * LIMITS[-1]}"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(seeds)], check)
    atheris.Fuzz()


def seed_sources(spec: Any, data: Path, specs: Path) -> tuple[list[list[Path]], list[str]]:
    """Find source files for seeds.

    Returns:
        The files that are read with the same options as the first, each with its companions; and the names of the
        companions of a file named `x`.
    """
    from pipelines.sources import matches, reader
    from pipelines.specs import file_options

    folder = next(place for place in (data / spec.folder, specs / "samples" / spec.folder) if place.is_dir())
    options = file_options(spec, spec.files[0])
    alike = [entry for entry in spec.files if file_options(spec, entry) == options]
    paths = [path for entry in alike for path in matches(folder, entry.path)]
    found = [[path, *reader(spec.format).companions(folder, path, options)] for path in paths]
    found = sorted(found, key=len, reverse=True)[:TRIED]  # prefer complete sets of companions
    # Companions that are derived from the file's name alone.
    named = reader(spec.format).companions(folder / "no such folder", f"x{Path(paths[0]).suffix}", options)
    names = named or ["x" + Path(companion).suffix for companion in found[0][1:]]
    return [[folder / path for path in files] for files in found], names


def checker(spec: Any, folder: Path, beside: list[str]) -> Callable[[bytes], tuple[int, int]]:
    """Make a function that reads, maps and writes the content of bytes, and fails on a result that is not allowed.

    It returns the number of records and of rows.
    """
    from pipelines.mapping.mapper import mapper
    from pipelines.sources import RawRow, Slice, reader
    from pipelines.specs import file_options
    from ubert.schema.arrow import mismatches_to_batch, records_to_batch, rejects_to_batch
    from ubert.schema.errors import UserError
    from ubert.schema.record import Misplaced, Record, Reject

    module, options = reader(spec.format), file_options(spec, spec.files[0])
    path = folder / f"x{Path(spec.files[0].path).suffix}"
    misplaced: list[Misplaced] = []
    to_record = mapper(spec, "train", misplaced.append)
    for name in beside:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)

    def piece(content: bytes, start: int, stop: int) -> Slice:
        line = 1 + content.count(b"\n", 0, start)
        return Slice(str(folder), path.name, start, stop, line, spec.files[0].encoding, "0")

    def rows(content: bytes, start: int, stop: int) -> list[RawRow | Reject]:
        return list(module.read(piece(content, start, stop), options))

    def check(data: bytes) -> tuple[int, int]:
        content, *others = data.split(BREAK)
        path.write_bytes(content)
        for name, other in zip(beside, [*others, *[b""] * len(beside)], strict=False):
            (folder / name).write_bytes(other)
        try:
            found = rows(content, 0, len(content))
        except UserError:
            return 0, 0
        whole = piece(content, 0, len(content))
        mapped = [row if isinstance(row, Reject) else to_record(whole, row) for row in found]
        kept = [row for row in mapped if isinstance(row, Record)]
        rejects = [row for row in mapped if isinstance(row, Reject)]
        assert len(kept) + len(rejects) == len(found)
        assert len({record.record_id for record in kept}) == len(kept), "an id occurs twice"
        records_to_batch(kept)
        rejects_to_batch(rejects, "c", "train")
        mismatches_to_batch(misplaced, "c", "train")
        misplaced.clear()
        if (
            not beside
            and module.split_at(options) == "line"
            and (middle := content.find(b"\n", len(content) // 2) + 1)
        ):
            parts = chain(rows(content, 0, middle), rows(content, middle, len(content)))
            assert list(parts) == found, "other rows when cut"
        return len(kept), sum(isinstance(row, RawRow) for row in found)

    return check


if __name__ == "__main__":
    main()
