"""The variants of a recipe and its mixture that `experiments.py` compares, each with one change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from experiment_losses import Replaced

from ubert.schema.specs.mixture import Mixture

TOKENS = 1024  # of a batch
SIZE = 20_000  # draws of a mixture
CORPORA = [
    "broad_twitter",
    "clickbait",
    "clinc150",
    "csabstruct",
    "csabstruct_sentences",
    "cyner",
    "fewrel",
    "goemotions_sentiment",
    "kpa_2021_stance",
    "medical_rqe",
    "mnli_dev",
    "music_reco_ner",
    "qnli_dev",
    "query_wellformedness",
    "semeval2010_task8",
    "semeval2010_task8_labels",
    "snips",
    "snips_intent",
    "snli_dev",
    "stackoverflow_ner",
]
"""The corpora of universal-small-commercial that are used, few enough to begin to be learnt within 500 steps."""


class Variant(NamedTuple):
    """Changes to the recipe and to the mixture, and a loss that replaces the structure table's."""

    recipe: Mapping[str, Any] = {}
    mixture: Mapping[str, Any] = {}
    loss: Replaced = ""
    of: str = "recipe"
    """The variant that it is based on."""
    described: Literal["", "in training", "always"] = ""
    """Where a category has a description: as the paraphrase of its name in training, or wherever it is named."""


RECIPE: dict[str, Any] = {
    "tokens_per_batch": TOKENS,
    "packs_per_batch": 2,
    "loss_scale": "log",
    "learning_rate": 3e-4,
    "head_learning_rate": 1e-3,
    "warmup": 0.05,
    "categories_per_piece": 48,
    "epochs": None,
    "from": None,
}
"""Changes to the mixture's recipe for a short run."""
PROMPTS = {"shuffle": True, "drop": 0.8, "rename": 0.3}
MASKED = {"objectives": {"structure": 0.85, "spanbert": 0.15}, "masking": {"texts": "all"}}
VARIANTS: dict[str, Variant] = {
    "recipe": Variant(),
    # which records
    "temperature 1": Variant(mixture={"policy": "proportional"}),
    "temperature 5": Variant(mixture={"temperature": 5.0}),
    "equal shares": Variant(mixture={"policy": "equal", "maximum": None}),
    "at most 1,000 records count": Variant(mixture={"maximum": 1000}),
    # batches
    "batches of one task": Variant({"batches": "by_task"}),
    "batches of one corpus": Variant({"batches": "cycle"}),
    "batches of 512 tokens": Variant({"tokens_per_batch": TOKENS // 2}),
    # losses
    "sum of losses": Variant({"loss_scale": "sum"}),
    "loss by gold cells": Variant({"loss_scale": "gold"}),
    "loss by uncertainty": Variant(loss="uncertainty"),
    "ZLPR": Variant({"loss": "zlpr"}),
    "focal loss": Variant(loss="focal"),
    # prompts
    "4 categories": Variant({"categories_per_piece": 4}),
    "8 categories": Variant({"categories_per_piece": 8}),
    "24 categories": Variant({"categories_per_piece": 24}),
    "categories in one order": Variant({"prompts": {**PROMPTS, "shuffle": False}}),
    "all categories shown": Variant({"prompts": {**PROMPTS, "drop": 0.0}}),
    "names as they are": Variant({"prompts": {**PROMPTS, "rename": 0.0}}),
    "names mostly renamed": Variant({"prompts": {**PROMPTS, "rename": 0.8}}),
    "names sometimes described": Variant(described="in training"),
    "names always described": Variant({"prompts": {**PROMPTS, "rename": 1.0}}, described="always"),
    # optimisation
    "a third of the rates": Variant({"learning_rate": 1e-4, "head_learning_rate": 3.3e-4}),
    "twice the rates": Variant({"learning_rate": 6e-4, "head_learning_rate": 2e-3}),
    "three times the head's rate": Variant({"head_learning_rate": 3e-3}),
    "no frozen layers": Variant({"freeze_layers": 0}),
    "layer_decay 0.75": Variant({"layer_decay": 0.75, "freeze_layers": 0}, of="no frozen layers"),
    "word embeddings trained": Variant({"freeze_words": False, "freeze_layers": 0}, of="no frozen layers"),
    "warm-up over a fifth": Variant({"warmup": 0.2}),
    "no dropout": Variant({"dropout": 0.0}),
    "masked words, 15 %": Variant(MASKED),
    "moving average of weights": Variant({"ema": 0.98}),
}


def mixed(base: Mixture, variant: Variant) -> Mixture:
    """Return the mixture of a variant. Its name has what is changed."""
    policy = {"policy": base.policy, "temperature": base.temperature, "maximum": base.maximum, **variant.mixture}
    if policy["policy"] != "temperature":
        del policy["temperature"]
    changed = "".join(f"-{key}-{value}".replace(".", "_").lower() for key, value in variant.mixture.items())
    kept = base.model_dump(exclude={"policy", "temperature", "maximum", "sources"})
    sources = [source for source in base.sources if source.corpus in CORPORA]
    return Mixture(**{**kept, "name": f"{base.name}-part{changed}", "size": SIZE, "sources": sources, **policy})
