"""The model: an encoder and a structure table, and its files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from ubert.model.batch import Batch
from ubert.model.structure_table import Scores, StructureTable
from ubert.schema.errors import UserError
from ubert.schema.recipe import Layout

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
FORMAT = "ubert/1"
# families whose positions begin after the padding id
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")


@dataclass(slots=True, frozen=True)
class Shape:
    """What a checkpoint keeps of its recipe: `table_size` is d of the structure table; a joint piece has at most
    `categories_per_piece` categories; text and pair of a piece have at most `max_tokens` tokens together."""

    layout: Layout = "joint"
    table_size: int = 128
    categories_per_piece: int = 32
    max_tokens: int = 256


class UbertModel(nn.Module):
    """Encoder and structure table (UBERT, section 3)."""

    def __init__(self, encoder: PreTrainedModel, shape: Shape) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.shape = shape
        width = encoder.config.hidden_size
        self.table = StructureTable(width, shape.table_size, conditioned=shape.layout == "joint")

    @property
    def most_tokens(self) -> int:
        """The longest sequence that the encoder takes."""
        config: Any = self.encoder.config
        positions = int(getattr(config, "max_position_embeddings", 512))
        return positions - config.pad_token_id - 1 if config.model_type in OFFSET_POSITIONS else positions

    def forward(self, batch: Batch) -> Scores:
        """Score the tables of a batch."""
        inputs = {"input_ids": batch.ids_BL, "attention_mask": batch.mask_BL}
        if getattr(self.encoder.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = batch.types_BL
        hidden_BLD = self.encoder(**inputs).last_hidden_state
        scores: Scores = self.table(hidden_BLD, batch)
        return scores

    @classmethod
    def new(cls, encoder: str, shape: Shape, *, vocabulary: int, seed: int) -> UbertModel:
        """A pretrained encoder with a new structure table.

        Args:
            encoder: hub name or local path.
            vocabulary: tokens of the tokeniser; the embeddings grow where it has more than the encoder.
            seed: of the new weights.

        Raises:
            UserError: the encoder can't be loaded.
        """
        try:
            loaded = AutoModel.from_pretrained(encoder, dtype=torch.float32, trust_remote_code=False)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"encoder {encoder!r} can't be loaded ({reason}); give a hub name or a folder with config.json"
            ) from None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if vocabulary > loaded.get_input_embeddings().num_embeddings:
                loaded.resize_token_embeddings(vocabulary)
            return cls(_without_pooler(loaded), shape)

    def save(self, directory: Path) -> None:
        """Write config.json and model.safetensors."""
        config = {"format": FORMAT, "shape": asdict(self.shape), "encoder": self.encoder.config.to_dict()}
        (directory / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        save_file({name: t.contiguous() for name, t in self.state_dict().items()}, directory / WEIGHTS)

    @classmethod
    def load(cls, directory: Path) -> UbertModel:
        """Read what `save` wrote.

        Raises:
            UserError: the directory is not a checkpoint, or its weights are damaged or don't fit its config.
        """
        for name in (CONFIG, WEIGHTS):
            if not (directory / name).is_file():
                raise UserError(f"{directory} is not a checkpoint: {name} is missing")
        try:
            config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
            if config.get("format") != FORMAT:
                raise UserError(
                    f"{directory / CONFIG}: format is {config.get('format')!r}, expected {FORMAT!r}; "
                    "give a checkpoint that `ubert pretrain` wrote"
                )
            encoder_config = AutoConfig.for_model(**config["encoder"])
            encoder: Any = AutoModel.from_config(encoder_config, trust_remote_code=False)  # type: ignore[no-untyped-call]
            model = cls(_without_pooler(encoder.float()), Shape(**config["shape"]))
            model.load_state_dict(load_file(directory / WEIGHTS))
        except (ValueError, TypeError, KeyError, SafetensorError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{directory}: damaged checkpoint ({reason}); use the one before it") from None
        return model


def _without_pooler(encoder: Any) -> Any:
    """A pooler's weights would get no gradient."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder
