"""Pack a checkpoint for distribution: half precision, without optimizer, without its encoder's word embeddings."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from ubert.inference.thresholds import FILE as THRESHOLDS
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import WEIGHTS, UbertModel
from ubert.model.words import read_words, words_name
from ubert.schema.errors import UserError
from ubert.training.checkpoints import checkpoint


def pack(source: Path, out: Path) -> Path:
    """Write the packed form of a checkpoint into a new folder.

    Raises:
        UserError: the folder exists, the checkpoint is damaged, or its word embeddings are not its encoder's.
    """
    if out.exists():
        raise UserError(f"{out}: already exists; give a new folder")
    state = checkpoint.read_state(source)
    checkpoint.verify(source)
    model, encoder = UbertModel.load(source), state.recipe.encoder
    words = words_name(model)
    if not torch.equal(read_words(encoder, words.removeprefix("encoder.")).float(), model.word_vectors):
        raise UserError(
            f"{source}: its word embeddings are not those of {encoder}, so they can't be left out; train with "
            "`freeze_words: true`"
        )
    out.mkdir(parents=True)
    model.config.words = encoder
    model.save(out)
    weights = {name: tensor.half() for name, tensor in load_file(out / WEIGHTS).items() if name != words}
    save_file(weights, out / WEIGHTS, metadata={"format": "pt"})
    load_tokenizer(str(source)).save(out)
    if (source / THRESHOLDS).is_file():
        shutil.copyfile(source / THRESHOLDS, out / THRESHOLDS)
    return checkpoint.write_state(out, state)
