"""How long the default model takes: `ubert serve` until its first answer, and `ubert predict` until its end.

Seconds are wall clock. `processor time` is that of the command's own process.

    python benchmarks/first_answer.py [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measure import report
from serve import server

from pipelines.serving.run import DEFAULT

TEXT = "Anna Berg moved to Oslo."
CATEGORIES = ["person", "city"]


def served() -> tuple[float, float]:
    """Start a server, and ask it until it answers."""
    body = json.dumps({"task": "ner", "categories": CATEGORIES, "texts": [TEXT]}).encode()
    began = time.perf_counter()
    with server(Path(DEFAULT), body) as (_, process):
        return time.perf_counter() - began, sum(process.cpu_times()[:2])


def predicted() -> tuple[float, float]:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pipelines.cli", "predict", DEFAULT, "--task", "ner"]
    subprocess.run([*command, "--categories", ",".join(CATEGORIES), TEXT], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    for name, start in (("serve", served), ("predict", predicted)):
        start()  # files come from the disk the first time
        waited, used = zip(*(start() for _ in range(runs)), strict=True)
        report("first_answer", name, statistics.median(waited), None, "s", runs, digits=2)
        report("first_answer", f"{name}, processor time", statistics.median(used), None, "s", runs, digits=2)


if __name__ == "__main__":
    main()
