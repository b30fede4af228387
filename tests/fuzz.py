"""Coverage-guided fuzzing of readers and mappings with atheris: `make fuzz SECONDS=3600`.

For every spec, the reader of its format and its mapping run over mutations of the dataset's own first bytes. What
may happen: rows, each a record or a reject that Arrow can hold, or one `UserError`. Never another exception, a
hang, or other rows when a file is cut where its format allows it. An input that fails is left where the last line
says.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any

BREAK = b"\x00\xff\x00"  # between the bytes of a file and of those beside it
SEED = 3000  # bytes of a source file that mutations begin with


def main() -> None:
    """Fuzz all specs, or those that are named, for a time that they share."""
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
            print(done.stderr[-4000:], f"\n{name} failed; its input is in {folder}", flush=True)
    sys.exit(f"{len(failed)} failed: {', '.join(failed)}" if failed else 0)


def fuzz(name: str, data: Path, folder: Path, seconds: int) -> None:
    """Fuzz one spec in this process."""
    import atheris

    with atheris.instrument_imports(include=["pipelines", "ubert"]):
        from pipelines import mapping, run_unit, sources  # noqa: F401
        from pipelines.specs import dataset_spec, file_options, specs_folder

        spec = dataset_spec(name, specs_folder(None))
        sources.reader(spec.format)
    options = file_options(spec, spec.files[0])
    seeds = folder / "seeds"
    seeds.mkdir()
    for number, seed in enumerate(seed_bytes(spec, data, specs_folder(None))):
        (seeds / str(number)).write_bytes(seed)
    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=3000", "-max_len=6000"]
    atheris.Setup(
        [sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(seeds)],
        lambda b: check(spec, options, folder, b),
    )
    atheris.Fuzz()


def seed_bytes(spec: Any, data: Path, specs: Path) -> list[bytes]:
    """The first bytes of a few source files, with those beside them."""
    from pipelines.sources import matches, reader
    from pipelines.specs import file_options

    folder = next(place for place in (data / spec.folder, specs / "samples" / spec.folder) if place.is_dir())
    found = []
    for entry in spec.files[:4]:
        path = folder / matches(folder, entry.path)[0]
        together = [path, *reader(spec.format).companions(path, file_options(spec, entry))]
        found.append(BREAK.join(file.read_bytes()[:SEED] for file in together))
    return found


def check(spec: Any, options: Any, folder: Path, data: bytes) -> None:
    """Read, map and write what `data` holds."""
    from pipelines.mapping import mapper
    from pipelines.sources import RawRow, Slice, reader
    from ubert.schema.arrow import mismatches_to_batch, records_to_batch, rejects_to_batch
    from ubert.schema.errors import UserError
    from ubert.schema.record import Misplaced, Record, Reject

    content, *others = data.split(BREAK)
    suffix = Path(spec.files[0].path).suffix
    path = folder / f"x{suffix}"
    path.write_bytes(content)
    beside = [path.with_suffix(ending) for ending in getattr(options, "annotations", [])]
    named = getattr(options, "beside", None)
    beside += [folder / other for other in named.values()] if isinstance(named, dict) else []
    for file, other in zip(beside, [*others, *[b""] * len(beside)], strict=False):
        file.write_bytes(other)
    module = reader(spec.format)

    def rows(start: int, stop: int) -> list[RawRow | Reject]:
        line = 1 + content.count(b"\n", 0, start)
        return list(module.read(Slice(folder, path.name, start, stop, line, spec.files[0].encoding, "0"), options))

    try:
        found = rows(0, len(content))
    except UserError:
        return
    misplaced: list[Misplaced] = []
    to_record = mapper(spec, "train", Slice(folder, path.name, 0, len(content), 1, "utf-8", "0"), misplaced.append)
    mapped = [row if isinstance(row, Reject) else to_record(row) for row in found]
    kept = [row for row in mapped if isinstance(row, Record)]
    rejects = [row for row in mapped if isinstance(row, Reject)]
    assert len(kept) + len(rejects) == len(found)
    assert len({record.record_id for record in kept}) == len(kept), "an id occurs twice"
    records_to_batch(kept), rejects_to_batch(rejects, "c", "train"), mismatches_to_batch(misplaced, "c", "train")
    if module.split_at(options) == "line" and (middle := content.find(b"\n", len(content) // 2) + 1):
        assert list(chain(rows(0, middle), rows(middle, len(content)))) == found, "other rows when cut"


if __name__ == "__main__":
    main()
