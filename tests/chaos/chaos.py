"""Inject random faults into `ubert` commands: `make chaos MINUTES=20`.

A trial takes the store before a stage (ingest, shard or pretrain), and runs the stage's command up to three
times under faults at random moments: processes are killed or stopped, the wall clock jumps, the disk fills up,
the object store fails. Then the same command runs without faults, at the true time. It must succeed, and the
store must equal that of an uninterrupted run: the same files, hashes, counts and losses. A command that a fault
ends must print its cause in one sentence. The clock jumps only if there is a C compiler (`cc`), and with
`--cluster` only the driver's.

A trial's faults are determined by its seed: `--seed 7 --trials 1` repeats trial 7. Only the timing of processes
differs between machines. A failed trial keeps its folder, with the output of each attempt and Ray's logs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path

from chaos_faults import FAULTS, SPECIAL, adopt
from chaos_ray import Cluster
from chaos_trial import WAYS, Chaos, Tally, Trial, variables
from chaos_world import STAGES, Stage, World, digest
from object_store import serve

from pipelines.mixtures.mix import mix
from pipelines.specs import mixture

SETTINGS = ("plain", "disk", "objects")


def main() -> None:
    """Run trials for the given time, and print a table at the end."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--minutes", type=float, default=20.0)
    arguments.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of the first trial")
    arguments.add_argument("--trials", type=int, default=sys.maxsize, help="at most")
    arguments.add_argument("--records", type=int, default=1500, help="of each dataset")
    arguments.add_argument("--steps", type=int, default=40)
    arguments.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    arguments.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT")
    arguments.add_argument("--cluster", action="store_true", help="one Ray for all: for a busy machine")
    given = arguments.parse_args()
    if not set(given.faults) - set(SPECIAL):
        arguments.error(f"--faults: not every trial has what {', '.join(given.faults)} needs; add another")
    adopt()
    tally = Tally()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        at = stack.enter_context(socket.socket())
        at.bind(("127.0.0.1", 0))
        objects = stack.enter_context(serve(at))
        endpoint = f"http://127.0.0.1:{at.getsockname()[1]}"
        cluster = Cluster(folder, variables(folder, endpoint)) if given.cluster else None
        stack.callback(cluster.end if cluster else lambda: None)
        chaos = Chaos(World(folder), given.faults, {}, {}, objects, endpoint, cluster)
        prepare(chaos, given.records, given.steps, max(map(STAGES.index, given.stages)))
        began = time.monotonic()
        with suppress(KeyboardInterrupt):  # Ctrl-C ends the trials early, but still prints the table
            for seed in range(given.seed, given.seed + given.trials):
                if time.monotonic() > began + 60 * given.minutes:
                    break
                tried(chaos, seed, given.stages, folder / str(seed), tally)
        chaos.end_all()
    print(table(tally, (time.monotonic() - began) / 60))
    if not tally.failed:
        shutil.rmtree(folder)
    sys.exit(f"{len(tally.failed)} of {tally.trials.total()} trials failed; see {folder}" if tally.failed else 0)


def prepare(chaos: Chaos, records: int, steps: int, last: int) -> None:
    """Make the world, and run every stage up to the last once without faults."""
    folder = chaos.world.folder
    chaos.world.make(records, steps)
    for stage, following in list(zip(STAGES, (*STAGES[1:], None), strict=True))[: last + 1]:
        trial = Trial(chaos, stage, folder / stage, random.Random(0), "plain")
        with trial.set_up():
            chaos.seconds[stage] = trial.run_without_faults()
            chaos.expected[stage] = digest(trial.store)
            if following == "shard":
                mix(mixture("chaos", chaos.world.folder / "specs"), root=trial.store)
            if following:
                shutil.copytree(trial.store, chaos.world.before(following))
        shutil.rmtree(trial.folder)
    times = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in chaos.seconds.items())
    print(f"uninterrupted: {times}; {folder}", flush=True)


def tried(chaos: Chaos, seed: int, stages: list[Stage], folder: Path, tally: Tally) -> None:
    """Run a trial; print its line, and add its counts to the tally."""
    rng = random.Random(seed)
    stage = rng.choice(stages)
    setting = rng.choice(SETTINGS[:2] if stage == "pretrain" else SETTINGS)  # runs are always on the disk
    trial = Trial(chaos, stage, folder, rng, setting)
    began = time.monotonic()
    print(f"{datetime.now():%H:%M:%S} trial {seed}: {stage}, {setting}", end="", flush=True)
    try:
        with trial.set_up():
            for number in range(rng.randint(1, 3)):
                if trial.attempt(number, tally):
                    break
            trial.run_without_faults()
            trial.check()
        print(f": nothing lost; {time.monotonic() - began:.0f} s", flush=True)
        shutil.rmtree(folder)
    except Exception as error:  # noqa: BLE001  # a failed trial must not end the others
        chaos.end_all()
        said = str(error) if isinstance(error, AssertionError) else repr(error)
        tally.failed.append(f"trial {seed}: {said}")
        print(f": FAILED: {said}; kept in {folder}", flush=True)
    tally.trials[stage] += 1


def table(tally: Tally, minutes: float) -> str:
    """Format a Markdown table of the commands' outcomes by fault and stage."""
    lines = [f"| fault | stage | {' | '.join(WAYS)} |", "|---|---|" + "--:|" * len(WAYS)]
    for kind in FAULTS:
        for stage in STAGES:
            counted = [tally.rows[kind, stage, way] for way in WAYS]
            if any(counted):
                lines.append(f"| {kind} | {stage} | {' | '.join(map(str, counted))} |")
    trials = ", ".join(f"{stage} {count}" for stage, count in tally.trials.items())
    lost = "\n".join(tally.failed) or "nothing lost"
    faults = f"{tally.trials.total()} trials ({trials}) with {tally.rows.total()} faults in {minutes:.0f} minutes"
    return "\n".join(["", *lines, "", f"{faults}: {lost}"])


if __name__ == "__main__":
    main()
