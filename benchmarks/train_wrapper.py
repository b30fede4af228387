"""The overhead of Ray Train: steps per second under it, against the bare loop (`python -m ubert.training`).

Both sides run the same loop on the same shards of synthetic entities, with a pretrained MiniLM. Ours runs in a
worker of Ray Train, theirs in its own process, one after the other. The rate of a run is that of its median
step, from its log, without five warm-up steps. Start-up is a separate case: the seconds that a run takes outside
its steps.

    python benchmarks/train_wrapper.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from measure import report

from pipelines import openmp
from pipelines.ingest.ingest import ingest
from pipelines.ray_tasks import session
from pipelines.samples.generate import generate_files
from pipelines.specs import specs_folder
from pipelines.training.pretrain import pretrain
from ubert.schema.specs.recipe import Recipe
from ubert.training.logs import log

DATASET = "sample_entities"
WARM_UP = 5  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one run of each side, of 25 steps: about a minute")
    runs, steps = (1, 25) if parser.parse_args().quick else (5, 100)
    openmp.set_variables()  # for both sides
    os.environ.pop("OMP_NUM_THREADS", None)  # workers of Ray Train use all processors regardless
    rates: tuple[list[float], list[float]] = ([], [])
    starts: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, session(None, dashboard=True):
        root, specs = Path(folder) / "store", Path(folder) / "specs"
        prepare(root, specs)
        for run in range(runs):
            for side, train in enumerate((under_ray, bare)):
                recipe = Recipe(name=f"run-{run}-{side}", mixture="timed", steps=steps, tokens_per_batch=512)
                start = time.perf_counter()
                train(recipe, root, specs)
                whole = time.perf_counter() - start
                seconds = [row.seconds for row in log.read(root / "runs" / recipe.name)[0]]
                rates[side].append(1 / statistics.median(seconds[WARM_UP:]))
                starts[side].append(whole - sum(seconds))
    ours, theirs = map(statistics.median, rates)
    report("train_wrapper", "training", ours, theirs, "steps/s", runs, more=True)
    ours, theirs = map(statistics.median, starts)
    report("train_wrapper", "starting up", ours, theirs, "s", runs)


def prepare(root: Path, specs: Path) -> None:
    """Ingest a corpus, and write the spec of a mixture of it alone."""
    shutil.copytree(specs_folder(None) / "datasets", specs / "datasets")
    (specs / "mixtures").mkdir()
    mixture = {"name": "timed", "sources": [{"corpus": DATASET}]}
    (specs / "mixtures/timed.yaml").write_text(yaml.safe_dump(mixture), encoding="utf-8")
    list(generate_files(500, 0, root.parent / "world"))
    ingest([DATASET], specs=specs, data=root.parent / "world", root=root)


def under_ray(recipe: Recipe, root: Path, specs: Path) -> None:
    pretrain(recipe, root=root, specs=specs)


def bare(recipe: Recipe, root: Path, specs: Path) -> None:
    path = specs / f"{recipe.name}.yaml"
    path.write_text(yaml.safe_dump(recipe.model_dump(exclude_none=True)), encoding="utf-8")
    command = [sys.executable, "-m", "ubert.training", str(path), "--root", str(root), "--specs", str(specs)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
