"""Checkpoints without word embeddings, which are read from the encoder instead.

Word embeddings are half of a small encoder, and the same in each checkpoint trained with `freeze_words`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PreTrainedModel

from ubert.model.tokenizer import encoder_path
from ubert.schema.errors import UserError

if TYPE_CHECKING:
    from ubert.model.ubert import UbertModel

FILE = "model.safetensors"


class WithoutWords(PreTrainedModel):
    """A model whose checkpoint may omit its word embeddings."""

    @classmethod
    def from_pretrained(cls, *where: Any, **how: Any) -> Any:
        """Load a model as transformers does, also through `AutoModel`, with the word embeddings of its encoder if
        the checkpoint omits them.

        Raises:
            UserError: the encoder or its word embeddings are missing, or have another size.
        """
        loaded: Any = super().from_pretrained(*where, **how)
        model = loaded[0] if how.get("output_loading_info") else loaded
        if model.config.words:
            take_words(model)
        return loaded

    def post_init(self) -> None:
        super().post_init()  # type: ignore[no-untyped-call]
        if self.config.words:  # `from_pretrained` would report them as newly initialised
            omitted = words_name(self)  # type: ignore[arg-type]
            self._keys_to_ignore_on_load_missing = {*(self._keys_to_ignore_on_load_missing or ()), omitted}


def take_words(model: UbertModel) -> None:
    """Load the word embeddings of the encoder that the model's config names.

    Raises:
        UserError: the encoder or its word embeddings are missing, or have another size.
    """
    vectors = read_words(model.config.words, words_name(model).removeprefix("encoder."))
    if vectors.shape != model.word_vectors.shape:
        raise UserError(
            f"encoder {model.config.words!r} has word embeddings of {tuple(vectors.shape)}, and the checkpoint "
            f"was trained on {tuple(model.word_vectors.shape)}; install the version of the encoder that it names"
        )
    with torch.no_grad():
        model.encoder.get_input_embeddings().weight = torch.nn.Parameter(vectors.to(model.word_vectors))
    model.config.words = None  # the model has them now; saving it writes them


def words_name(model: UbertModel) -> str:
    """Return the name of the parameter with a model's word embeddings."""
    return next(name for name, parameter in model.named_parameters() if parameter is model.word_vectors)


def read_words(encoder: str, name: str) -> Tensor:
    """Return the word embeddings [V, E] of an encoder on the local disk, by the name of their tensor.

    Raises:
        UserError: they are missing.
    """
    path = Path(encoder_path(encoder)) / FILE
    try:
        with safe_open(path, framework="pt") as file:
            found = [key for key in file.keys() if key == name or key.endswith(f".{name}")]  # noqa: SIM118
            if len(found) == 1:
                tensor: Tensor = file.get_tensor(found[0])
                return tensor
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}), but the checkpoint takes its word embeddings from there; install "
            "the encoder"
        ) from None
    raise UserError(f"{path}: no word embeddings called {name}; install the encoder that the checkpoint names")
