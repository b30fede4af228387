"""The loss of a model on held-out texts."""

from __future__ import annotations

from pathlib import Path

import torch

from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import Tokenizer
from ubert.model.ubert import UbertModel
from ubert.schema.specs.recipe import Prompting, Recipe
from ubert.structure import cells
from ubert.structure.batch import Batch


@torch.no_grad()
def validation_loss(model: UbertModel, tokenizer: Tokenizer, recipe: Recipe, shards: Path) -> float:
    """Return the structure table's mean loss per row of the shards, by the recipe's settings, without dropout.

    Every row is used once, and prompts don't vary, so that two models get the same input.
    """
    once = recipe.model_copy(update={"steps": None, "epochs": 1.0, "prompts": Prompting(), "batches": "mixed"})
    loader = Loader(open_shards(shards), once, tokenizer.special, model.most_tokens)
    model.eval()  # type: ignore[no-untyped-call]
    total, rows = 0.0, 0
    for step in map(loader.step, range(loader.total_steps)):
        for batch in step.batches:
            assert isinstance(batch, Batch)
            total += float(cells.loss(model(batch), batch, recipe.loss_scale, recipe.loss)[0])
        rows += step.examples
    return total / rows
