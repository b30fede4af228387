"""Train without Ray: `python -m ubert.training RECIPE --root store`, alone or under torchrun.

The exit code is 0 when the run is finished, 1 on a failure, and 130 when the run was stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from ubert.model.tokenizer import load_tokenizer
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import Recipe
from ubert.schema.yaml_file import load
from ubert.training import loop, run_directory
from ubert.training.step import Worker

SPECS = Path(__file__).parents[2] / "corpus_specs"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ubert.training",
        description="Train a recipe on the shards of its mixture, without Ray.",
        epilog="Example: torchrun --nproc-per-node 2 -m ubert.training trec.yaml --root store",
    )
    parser.add_argument("recipe", help="name of a recipe, or its YAML file")
    parser.add_argument("--specs", type=Path, default=os.environ.get("UBERT_SPECS", SPECS), help="folder of specs")
    parser.add_argument("--root", type=_folder, default=os.environ.get("UBERT_ROOT", "store"), help="the store")
    parser.add_argument("--name", help="name of the run; default: the recipe's")
    parser.add_argument("--resume", action="store_true", help="resume from a checkpoint; more steps are allowed")
    given = parser.parse_args()
    worker = _worker()
    try:
        named = given.specs / "recipes" / f"{given.recipe}.yaml"
        recipe = load(Recipe, named if named.exists() else Path(given.recipe))
        if recipe.replay:  # other shares have shards of the same name
            raise UserError(f"recipe {recipe.name}: replay: only `ubert pretrain` draws its share; train with it")
        shards = run_directory.find_shards(given.root, recipe, load_tokenizer(recipe.encoder).hash)
        run = run_directory.directory(given.root, given.name or recipe.name)
        was_finished = run_directory.finished(run) is not None
        with run_directory.driving(run) if worker.rank == 0 else nullcontext():
            checkpoint = loop.train(recipe, shards=shards, run=run, worker=worker, resume=given.resume)
        if worker.rank == 0:
            finished = f"{run.name} was already finished: " if was_finished and not given.resume else ""
            print(f"{finished}{checkpoint}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stopped:
        print(stopped, file=sys.stderr)
        return 130
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


def _folder(given: str) -> Path:
    """Accept only a local folder. This library has no network code; `ubert pretrain` reads object stores."""
    if "://" in given:
        raise argparse.ArgumentTypeError(f"{given}: expected a folder; from an object store, use `ubert pretrain`")
    return Path(given)


def _worker() -> Worker:
    """Return this process as a worker of torchrun, or as the only one."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Worker(rank, world, device)


if __name__ == "__main__":
    sys.exit(main())
