"""Convert the public UBERT checkpoints (Fengshenbang-LM, Erlangshen-Ubert) to this format, with equal scores.

They have the stacked layout, one category per sequence:

    [CLS] task [SEP] subtask [SEP] category [SEP] text [SEP]

Their only biaffine table has no conditioning, and (CLS, CLS) is one of its cells, like the others.
"""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, BertPreTrainedModel

from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import Shape, UbertModel, quietly
from ubert.schema.errors import UserError


class _Public(BertPreTrainedModel):
    """The parameters under the names of those checkpoints."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        width, size = config.hidden_size, config.biaffine_size
        self.bert: Any = BertModel(config, add_pooling_layer=False)
        self.query_layer = nn.Sequential(nn.Linear(width, size))
        self.key_layer = nn.Sequential(nn.Linear(width, size))
        self.biaffine_query_key_cls = nn.ParameterDict({"U": torch.zeros(size + 1, 1, size + 1)})
        self.post_init()  # type: ignore[no-untyped-call]


def convert(source: str, directory: Path) -> None:
    """Convert a public checkpoint and its tokenizer, and write them.

    Args:
        source: hub name or local folder. Weights that are not safetensors are read with torch's restricted loader,
            which loads only tensors and refuses other content.
        directory: a new folder.

    Raises:
        UserError: the source can't be read, or is not such a checkpoint; the directory exists or can't be written.
    """
    model, tokenizer = read(source), load_tokenizer(source)
    try:
        directory.mkdir(parents=True)
        model.save(directory)
        tokenizer.save(directory)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written ({error.strerror}); name a new folder") from None


def read(source: str) -> UbertModel:
    """Load a public checkpoint as a model.

    Raises:
        UserError: it can't be read, or is not such a checkpoint.
    """
    try:
        with quietly():
            config = BertConfig.from_pretrained(source)
            loaded: Any = _Public.from_pretrained(
                source, config=config, dtype=torch.float32, weights_only=True, output_loading_info=True
            )
    except UnpicklingError:
        raise UserError(
            f"{source}: its weights are not plain tensors, and are not read; save them as safetensors"
        ) from None
    except (OSError, ValueError, AttributeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{source}: not a public UBERT checkpoint ({reason}); give a hub name or a folder"
        ) from None
    public, found = loaded
    if missing := found["missing_keys"]:
        raise UserError(f"{source}: not a public UBERT checkpoint: it has no weights {min(missing)}")
    shape = Shape(
        "stacked", config.biaffine_size, categories_per_piece=1, max_tokens=config.max_position_embeddings
    )
    model = UbertModel.around(public.bert, shape)
    biaffine = public.biaffine_query_key_cls["U"].squeeze(1)
    tensors = {"U": biaffine, "anchor_bias": biaffine[-1, -1:]}
    for ours, theirs in (("start", public.query_layer[0]), ("end", public.key_layer[0])):
        tensors |= {f"{ours}.{name}": tensor for name, tensor in theirs.named_parameters()}
    model.structure_table().load_state_dict(tensors)
    return model
