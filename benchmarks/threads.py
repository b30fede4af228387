"""Compare how OpenMP's threads wait for work: steps of two threads, alone and beside two other trainings.

Ours is how the commands of ubert and the workers of `ubert pretrain` set it (pipelines/openmp.py). Each training
is a process of its own, because OpenMP reads the variables once. A step takes eight sentences of wnut17, joint, in
bf16 if the processor has it. It needs torch with GNU OpenMP, as on Linux.

    UBERT_DATA=../shared/data python benchmarks/threads.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack

import torch
from measure import ENCODER, report
from step import TEXTS, our_step, sentences

from pipelines.openmp import VARIABLES
from ubert.encoder.precision import runs_bf16
from ubert.model.tokenizer import load_tokenizer

OURS = "some 50 us, then asleep"
WAYS = {
    OURS: VARIABLES,
    "milliseconds, as by default": {},
    "asleep": {"OMP_WAIT_POLICY": "passive"},
    "some 500 us, then asleep": {"GOMP_SPINCOUNT": "10000"},
}
THREADS, WARM, STEPS = 2, 3, 12


def train(steps: int) -> None:
    """Print the seconds of a step, or train until the process is ended if `steps` is 0."""
    torch.set_num_threads(THREADS)
    step = our_step(
        "joint", sentences("wnut17", TEXTS), load_tokenizer(ENCODER), bf16=runs_bf16("auto", torch.device("cpu"))
    )
    for _ in range(WARM):
        step()
    print(json.dumps("warm"), flush=True)
    while not steps:
        step()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    print(json.dumps((time.perf_counter() - began) / steps), flush=True)


def started(steps: int, variables: dict[str, str]) -> subprocess.Popen[str]:
    """Start a training in a process of its own, and wait until it is warm."""
    names = {name for way in WAYS.values() for name in way}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, __file__, "--train", str(steps)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment | variables)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def seconds(variables: dict[str, str], steps: int) -> float:
    """Return the seconds of a step."""
    said, _ = started(steps, variables).communicate()
    return float(json.loads(said))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one run of two steps, against the default only")
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train is not None:
        train(given.train)
        return
    runs, steps = (1, 2) if given.quick else (3, STEPS)
    ways = dict(list(WAYS.items())[: 2 if given.quick else None])
    for others, load in ((0, "alone"), (2, "beside two others")):
        taken = defaultdict(list)
        with ExitStack() as running:
            for _ in range(others):
                running.callback(started(0, VARIABLES).kill)
            for _ in range(runs):
                for way, variables in ways.items():
                    taken[way].append(seconds(variables, steps))
        medians = {way: statistics.median(found) for way, found in taken.items()}
        for way in ways:
            if way != OURS:
                report("threads", f"{load}, against {way}", medians[OURS], medians[way], "s", runs, digits=4)


if __name__ == "__main__":
    main()
