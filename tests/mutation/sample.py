"""Estimate which share of small changes the tests notice: `make mutation MUTANTS=200 KEY=0`.

mutmut lists every small change of every function in MODULES: another operator, number, string or argument, and so
on. The key draws some of them. Each is made in a copy of the tree. Then the tests that run the changed statement
(see `record.py`) follow, the quickest first, until one fails: the mutant is caught. If none of those that take
`--seconds` of processor time does, it survives. `--again FILE` tries the survivors of an earlier sample once more.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import Counter
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from attempts import Copy
from mutants import Mutant, draw
from nearest import Nearest
from record import FOLDER

MODULES = ("ubert", "pipelines/mapping", "pipelines/sources", "pipelines/mixtures")
HOUR = 3600.0
NOT_FOUND = f"exit code {pytest.ExitCode.USAGE_ERROR.value}"  # also if a test's module cannot be imported
WAYS = ("caught", "survived", "not reached")


def main() -> None:
    """Try mutants one after another, write each outcome into a file of JSON lines, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--mutants", type=int, default=200)
    arguments.add_argument("--key", default="0")
    arguments.add_argument("--seconds", type=float, default=20.0, help="of tests for each mutant, as recorded")
    arguments.add_argument("--again", type=Path, help="outcomes of an earlier sample")
    given = arguments.parse_args()
    if given.again:
        earlier = [json.loads(line) for line in given.again.read_text(encoding="utf-8").splitlines()]
        caught = [one for one in earlier if one["way"] == "caught"]
        mutants = [Mutant(**one["mutant"]) for one in earlier if one["way"] != "caught"]
        out = given.again.with_suffix(".again.jsonl")
    else:
        caught, mutants = [], draw(MODULES, given.mutants, given.key)
        out = FOLDER / f"key-{given.key}.jsonl"
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder, out.open("w", encoding="utf-8") as lines:
        nearest, copy = Nearest(), Copy(Path(folder))
        outcomes = []
        for number, mutant in enumerate(mutants, 1):
            way, test = tried(mutant, nearest, copy, given.seconds)
            outcomes.append({"way": way, "test": test, "mutant": asdict(mutant)})
            print(f"{number}/{len(mutants)} {mutant.path}:{mutant.line}: {way} {test}", flush=True)
            lines.write(json.dumps(outcomes[-1]) + "\n")
            lines.flush()
        failing = copy.run(sorted({one["test"] for one in outcomes if "::" in one["test"]}), HOUR)
    print(table(caught + outcomes))
    if failing:
        raise SystemExit(f"{failing} fails without a mutant, too: what it caught does not count")


def tried(mutant: Mutant, nearest: Nearest, copy: Copy, seconds: float) -> tuple[str, str]:
    """Return what became of a mutant, and the test that caught it."""
    lines = Path(mutant.path).read_text(encoding="utf-8").splitlines(keepends=True)
    if (at := mutant.place(lines)) is None:
        return "gone", ""
    end = at + len(mutant.before.splitlines())
    reaching = nearest.of(mutant.path, at + 1, max(end, at + 1))
    tests = [
        test
        for test, until in zip(reaching, accumulate(map(nearest.seconds.__getitem__, reaching)), strict=True)
        if until <= seconds or test == reaching[0]
    ]
    if not tests:
        return "not reached", ""
    text = "".join((*lines[:at], mutant.after, *lines[end:]))
    limit = 30 + 5 * sum(map(nearest.seconds.__getitem__, tests))
    test = copy.attempt(mutant.path, text, tests, limit)
    if test == NOT_FOUND and copy.run(tests, limit) == NOT_FOUND:
        raise SystemExit("a test of the recording is gone; record again")
    return ("caught", test) if test else ("survived", f"{len(tests)} of {len(reaching)} tests")


def table(outcomes: list[dict[str, Any]]) -> str:
    """Format a Markdown table of the outcomes by folder, and the share that was caught, with its 95 % interval."""
    counts = Counter((one["mutant"]["path"].rpartition("/")[0], one["way"]) for one in outcomes)
    folders = sorted({folder for folder, _ in counts})
    lines = [f"| folder | {' | '.join(WAYS)} |", "|---|" + "--:|" * len(WAYS)]
    lines += [f"| `{folder}` | {' | '.join(str(counts[folder, way]) for way in WAYS)} |" for folder in folders]
    caught, tried = (sum(counts[folder, way] for folder in folders for way in ways) for ways in (WAYS[:1], WAYS))
    low, high = wilson(caught, tried)
    return "\n".join([*lines, "", f"{caught} of {tried} caught: {caught / tried:.1%} ({low:.1%} to {high:.1%})"])


def wilson(found: int, total: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share, by Wilson's score."""
    z = 1.96
    share, middle = found / total, found / total + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


if __name__ == "__main__":
    main()
