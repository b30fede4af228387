"""Pack a checkpoint for distribution: half precision, without optimizer, without its encoder's word embeddings."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ubert.inference.thresholds import FILE as THRESHOLDS
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import CONFIG, WEIGHTS, UbertModel
from ubert.model.word_embeddings import read_words, words_name
from ubert.schema.errors import UserError
from ubert.training import run_directory
from ubert.training.checkpoints import checkpoint


def pack(source: Path, out: Path, *, average_with: Sequence[Path] = ()) -> Path:
    """Write the packed form of a checkpoint into a new folder, which appears once it is complete.

    Args:
        average_with: checkpoints to average it with, weight by weight (Wortsman et al. 2022, "Model soups").
            They and their ancestors become its ancestors.

    Raises:
        UserError: the folder exists or can't be written, a checkpoint is damaged, the checkpoints differ in
            shape, or the word embeddings are not the encoder's.
    """
    if out.exists():
        raise UserError(f"{out}: already exists; give a new folder")
    state = checkpoint.read_state(source)
    for directory in (source, *average_with):
        checkpoint.verify(directory)
    model, encoder = UbertModel.load(source), state.recipe.encoder
    if average_with:
        _average(model, source, average_with)
    words = words_name(model)
    own = read_words(encoder, words.removeprefix("encoder.")).float()
    if own.shape != model.word_vectors.shape:
        raise UserError(
            f"{source}: it has {len(model.word_vectors):,} word embeddings and {encoder} {len(own):,}, because "
            "training added a marker to its vocabulary; they can't be left out, so use the checkpoint as it is"
        )
    if not torch.equal(own, model.word_vectors):
        raise UserError(
            f"{source}: its word embeddings are not those of {encoder}, so they can't be left out; train with "
            "`freeze_words: true`"
        )
    chains = [state.ancestry, *(run_directory.ancestry(directory) for directory in average_with)]
    ancestors = {one.weights: one for chain in chains for one in chain}
    state = state.model_copy(update={"ancestry": list(ancestors.values())})
    model.config.words = encoder
    half = out.with_name(f"{checkpoint.HALF}{out.name}")
    try:
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        _write_weights(half, model, words)
        load_tokenizer(str(source)).save(half)
        if (source / THRESHOLDS).is_file() and not average_with:
            shutil.copyfile(source / THRESHOLDS, half / THRESHOLDS)
        checkpoint.write_state(half, state)
        half.rename(out)
    except (OSError, SafetensorError) as error:
        sentence = f"{out}: cannot be written ({error}); free some disk space, or give another folder"
        raise UserError(sentence) from None
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return out


def _write_weights(folder: Path, model: UbertModel, words: str) -> None:
    """Write a model's config, and its weights in half precision without the word embeddings `words`."""
    model.save(folder)
    weights = {name: tensor.half() for name, tensor in load_file(folder / WEIGHTS).items() if name != words}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)


@torch.no_grad()
def _average(model: UbertModel, source: Path, others: Sequence[Path]) -> None:
    """Give a model the mean of its weights and those of other checkpoints. Equal weights stay the same to the bit.

    Adapters are merged first: a mean of products is not the product of the factors' means.

    Raises:
        UserError: one has other weights than the model.
    """
    mine = model.without_adapters().state_dict()
    loaded = [UbertModel.load(other).without_adapters().state_dict() for other in others]
    for other, theirs in zip(others, loaded, strict=True):
        if {name: t.shape for name, t in theirs.items()} != {name: t.shape for name, t in mine.items()}:
            raise UserError(
                f"{other}: its weights have other names or sizes than those of {source}; average checkpoints of "
                "one encoder and the same heads"
            )
    for name, tensor in mine.items():
        same = [theirs[name] for theirs in loaded]
        if not all(torch.equal(tensor, one) for one in same):
            tensor.copy_(torch.stack([tensor, *same]).mean(0))
