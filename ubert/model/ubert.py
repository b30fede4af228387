"""The model, an encoder with its heads, and its files, which `AutoModel` reads too."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import torch
from pydantic import Field, ValidationError, create_model
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.configuration_utils import SubConfigSpec
from transformers.utils import logging

from ubert.encoder import lora, unpadded
from ubert.encoder.precision import keep_half
from ubert.model.word_embeddings import WithoutWords
from ubert.schema.errors import UserError
from ubert.schema.specs.recipe import INITIAL_BIAS, Layout
from ubert.schema.wrong_keys import explain
from ubert.spanbert.masked_lm import MaskedBatch, MaskedHead
from ubert.spexbert.pointer import Pointer, PointerBatch
from ubert.structure.batch import Batch
from ubert.structure.structure_table import Scores, StructureTable
from ubert.unilm import cloze
from ubert.unilm.cloze import ClozeBatch
from ubert.unilm.copying import Copier

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
HEADS = ("table", "pointer", "masked", "copier")  # a model has those that its shape requires
_OF_FILES = (OSError, ValueError, SafetensorError)
_LAYERS = {"num_hidden_layers", "num_layers", "n_layers", "n_layer"}
_Size = Annotated[int, Field(ge=1, le=1 << 16)]


@dataclass(slots=True, frozen=True)
class Shape:
    """The settings of a recipe that a checkpoint keeps.

    `table_size`: d of the structure table. `categories_per_piece`: maximum categories of a joint piece.
    `max_tokens`: maximum tokens of text and pair together. `lora`: rank of the encoder's adapters, if any.
    `masked`: it predicts masked words. `unilm`: it has UniLM's segments, and generates texts. `points`: it
    points at spans (SpEx-BERT), and has no structure table. `copies`: it can copy words from the source when
    it generates.
    """

    layout: Layout = "joint"
    table_size: _Size = 128
    categories_per_piece: _Size = 32
    max_tokens: _Size = 256
    lora: _Size | None = None
    masked: bool = False
    unilm: bool = False
    points: bool = False
    copies: bool = False


class UbertConfig(PreTrainedConfig):
    """config.json of a checkpoint: the encoder's own configuration, and the fields of `Shape`."""

    model_type = "ubert"
    words: str | None = None  # the encoder to read the word embeddings from, if the checkpoint omits them
    instructions: dict[str, str] | None = None  # task -> its instruction in training, if all records had the same
    sub_configs_defaults: ClassVar = {"encoder": SubConfigSpec(config_class=AutoConfig, model_type="bert")}
    encoder: dict[str, Any] | PreTrainedConfig | None = None
    shape: dict[str, Any] | None = None


class UbertModel(WithoutWords):
    """An encoder with a structure table (UBERT, section 3) or a pointer (SpEx-BERT, section 3)."""

    config_class = UbertConfig

    def __init__(self, config: UbertConfig, encoder: PreTrainedModel | None = None) -> None:
        """`encoder`: an encoder with weights; if it is None, a new one is made from the configuration."""
        super().__init__(config)
        self.shape = Shape(**(config.shape or {}))
        if encoder is None:
            encoder = AutoModel.from_config(config.encoder, trust_remote_code=False)
        self.encoder: Any = encoder
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None  # its weights would get no gradient
        unpadded.prepare(self.encoder)
        keep_half(self.encoder)
        width = self.encoder.config.hidden_size
        self.table = None if self.shape.points else self._new_table(width)
        self.pointer = Pointer(width) if self.shape.points else None
        masked = self.shape.masked or self.shape.unilm
        self.masked = MaskedHead(width, *self.word_vectors.shape) if masked else None
        self.copier = Copier(width) if self.shape.copies else None
        self.post_init()
        if self.shape.lora:  # after `post_init`, which would initialise their weights like the encoder's
            lora.add(self.encoder, self.shape.lora)

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing: each module initialises its own weights."""

    @property
    def most_tokens(self) -> int:
        """The length of the longest sequence that the encoder takes."""
        most = int(getattr(self.encoder.config, "max_position_embeddings", 512))
        return (most if most > 0 else 512) - self.first_position  # -1 in XLNet: no limit

    @property
    def first_position(self) -> int:
        """The position of a sequence's first token. RoBERTa and related encoders start after the padding id."""
        positions = getattr(getattr(self.encoder, "embeddings", None), "position_embeddings", None)
        padding = getattr(positions, "padding_idx", None)
        return 0 if padding is None else int(padding) + 1

    def forward(self, batch: Batch) -> Scores:
        """Score the tables of a batch."""
        hidden_BLD = self.encode(batch.ids_BL, batch.mask_BL, batch.types_BL, batch.work.tokens)
        scores: Scores = self.structure_table()(hidden_BLD, batch)
        return scores

    def structure_table(self) -> StructureTable:
        """Return the head that scores tables.

        Raises:
            UserError: the model has none.
        """
        if self.table is None:
            raise UserError(
                "the model is a SpEx-BERT, which has no structure table; train one with structure instead of "
                "spexbert in the recipe's `objectives`"
            )
        return self.table

    def _new_table(self, width: int) -> StructureTable:
        return StructureTable(width, self.shape.table_size, conditioned=self.shape.layout == "joint")

    def pointed(self, batch: PointerBatch) -> Tensor:
        """Return logits of starts and ends [B, L, 2]; see `Pointer`."""
        assert self.pointer is not None
        hidden_BLD = self.encode(batch.ids_BL, batch.mask_BL, batch.types_BL, batch.tokens)
        logits_BL2: Tensor = self.pointer(hidden_BLD, batch.source_B)
        return logits_BL2

    @property
    def word_vectors(self) -> Tensor:
        """The encoder's word embeddings [V, E]."""
        vectors: Tensor = self.encoder.get_input_embeddings().weight
        return vectors

    def masked_losses(self, batch: MaskedBatch) -> Tensor:
        """Return the summed losses of masked words [2]; see `MaskedHead`.

        Raises:
            UserError: the model has no head for them.
        """
        hidden_BLD = self.encode(batch.ids_BL, batch.mask_BL, batch.types_BL, batch.tokens)
        losses: Tensor = self._masked_head()(hidden_BLD, self.word_vectors, batch)
        return losses

    def masked_logits(self, batch: MaskedBatch) -> Tensor:
        """Return logits of masked words [M, V].

        Raises:
            UserError: the model has no head for them.
        """
        hidden_BLD = self.encode(batch.ids_BL, batch.mask_BL, batch.types_BL, batch.tokens)
        hidden_MD = hidden_BLD.flatten(0, 1)[batch.position_M]
        return self._masked_head().from_own(hidden_MD, self.word_vectors)

    def _masked_head(self) -> MaskedHead:
        if self.masked is None:
            raise UserError("the model predicts no masked words; pretrain it with spanbert among its objectives")
        return self.masked

    def cloze_loss(self, batch: ClozeBatch) -> Tensor:
        """Return the summed loss of the hidden words of UniLM's sequences; see `ubert.unilm.cloze.loss`."""
        return cloze.loss(self.encoder, self.word_logits, batch, self.first_position, self.copier)[0]

    def word_logits(self, hidden_HD: Tensor) -> Tensor:
        """Return logits of words [H, V] from their hidden states."""
        logits_HV: Tensor = self.check_generates().from_own(hidden_HD, self.word_vectors)
        return logits_HV

    def check_generates(self) -> MaskedHead:
        """Return the head that generates words.

        Raises:
            UserError: the model has none, or lacks UniLM's segments.
        """
        if self.masked is None or not self.shape.unilm:
            raise UserError(
                "the model doesn't generate; train it with seq2seq or unilm among its recipe's objectives"
            )
        return self.masked

    @property
    def has_types(self) -> bool:
        """Whether the encoder distinguishes two segment types."""
        return getattr(self.encoder.config, "type_vocab_size", 0) > 1

    def encode(self, ids_BL: Tensor, mask_BL: Tensor, types_BL: Tensor, tokens: int | None = None) -> Tensor:
        """Return the encoder's output [B, L, D].

        `tokens`: the number of tokens without padding. If it is given, the CPU doesn't wait for the GPU.
        """
        types = {"token_type_ids": types_BL} if self.has_types else {}
        if unpadded.pays(self.encoder, ids_BL):
            return unpadded.encode(self.encoder, ids_BL, mask_BL, self.first_position, tokens, **types)
        mask_BL = mask_BL.long()  # XLNet subtracts it, which needs integers
        hidden_BLD: Tensor = self.encoder(input_ids=ids_BL, attention_mask=mask_BL, **types).last_hidden_state
        return hidden_BLD

    def without_adapters(self) -> UbertModel:
        """Merge the adapters into their layers. The scores stay the same, and the model becomes as fast as
        one without adapters."""
        if self.shape.lora:
            lora.merge(self.encoder)
            self.shape = replace(self.shape, lora=None)
            self.config.shape = asdict(self.shape)
            self.encoder.requires_grad_(True)
        return self

    @classmethod
    def around(cls, encoder: PreTrainedModel, shape: Shape) -> UbertModel:
        """Create a model around an encoder, with new heads."""
        config = encoder.config.to_dict()
        config.pop("_name_or_path", None)  # a local path
        return cls(UbertConfig(encoder=config, shape=asdict(shape)), encoder)

    @classmethod
    def new(
        cls, encoder: str, shape: Shape, *, vocabulary: int, seed: int, initial_bias: float = INITIAL_BIAS
    ) -> UbertModel:
        """Create a model from a pretrained encoder with new heads, or from a UBERT checkpoint with the heads
        that it has.

        Args:
            encoder: hub name or local path.
            vocabulary: size of the tokenizer's vocabulary; the embeddings are enlarged if the encoder has fewer.
            seed: seed of the new weights.
            initial_bias: bias of the cells of a new structure table.

        Raises:
            UserError: the encoder can't be loaded, its table has another layout or size, or it can't generate, as
                `shape` requires.
        """
        loaded = _loaded(encoder)
        start = loaded.without_adapters() if isinstance(loaded, UbertModel) else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            pretrained = start.encoder if start else loaded
            if vocabulary > pretrained.get_input_embeddings().num_embeddings:
                pretrained.resize_token_embeddings(vocabulary)
            if shape.unilm:
                cloze.check_encoder(pretrained)
                cloze.learn_segments(pretrained)
            model = cls.around(pretrained, shape)
            if model.table is not None:
                model.table.start_at(initial_bias)
        if start:
            both = start.table is not None and model.table is not None
            if both and (start.shape.layout, start.shape.table_size) != (shape.layout, shape.table_size):
                raise UserError(
                    f"checkpoint {encoder} has a table of layout {start.shape.layout} and size "
                    f"{start.shape.table_size}; expected {shape.layout} and {shape.table_size}: give the recipe "
                    "the checkpoint's `layout` and `table_size`"
                )
            for head in HEADS:
                if getattr(start, head) is not None and getattr(model, head) is not None:
                    setattr(model, head, getattr(start, head))
        return model

    @classmethod
    def load(cls, directory: Path) -> UbertModel:
        """Load a model that `save` wrote.

        Raises:
            UserError: the directory is not a checkpoint, or its weights are damaged or don't fit its config.
        """
        for name in (CONFIG, WEIGHTS):
            if not (directory / name).is_file():
                sentence = f"{directory} is not a checkpoint: {name} is missing; name one, or a run that has begun"
                raise UserError(sentence)
        try:
            _check_config(directory)
            with quietly():
                loaded: Any = cls.from_pretrained(
                    directory,
                    dtype=torch.float32,
                    local_files_only=True,
                    use_safetensors=True,
                    output_loading_info=True,
                )
        except (*_OF_FILES, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{directory}: damaged, or of another version ({reason}); use an earlier checkpoint"
            ) from None
        model, found = loaded
        if missing := found["missing_keys"]:
            raise UserError(
                f"{directory}: damaged, or of another version ({min(missing)} is missing); use an earlier "
                "checkpoint"
            )
        if unknown := found["unexpected_keys"]:
            raise UserError(
                f"{directory}: damaged, or of another version ({CONFIG} does not describe {min(unknown)}); use an "
                "earlier checkpoint"
            )
        if model.shape.lora:
            lora.freeze(model.encoder)  # loading unfreezes it
        return cast(UbertModel, model)

    def save(self, directory: Path, weights: dict[str, Tensor] | None = None) -> None:
        """Write config.json and model.safetensors, from which `load` and `AutoModel` read the model. `weights`, if
        given, replace the model's own of the same names."""
        with quietly():
            self.save_pretrained(directory, state_dict=weights)
        shutil.copymode(directory / CONFIG, directory / WEIGHTS)  # safetensors makes it private


def set_dropout(part: nn.Module, share: float) -> None:
    """Set the dropout rate of hidden states in a model or a part of it."""
    for module in part.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


def _check_config(directory: Path) -> None:
    """Check the configuration before a model is made from it.

    Raises:
        UserError: it belongs to another model.
        ValueError: it is not JSON, or has sizes that the weights can't have.
    """
    config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    kind = config.get("model_type") if isinstance(config, dict) else config
    if kind != UbertConfig.model_type:
        raise UserError(
            f"{directory / CONFIG}: model_type is {kind!r}, expected {UbertConfig.model_type!r}; "
            "give a checkpoint that `ubert pretrain` or `ubert convert` wrote"
        )
    try:
        checked = create_model("Config", shape=Shape, instructions=dict[str, str])
        own = {key: config.get(key) or {} for key in checked.model_fields}
        checked.model_validate_json(json.dumps(own), strict=True)
    except ValidationError as error:
        raise UserError("\n".join(explain(error, directory / CONFIG))) from None
    if not isinstance(encoder := config.get("encoder"), dict):
        raise ValueError("not the configuration of an encoder")
    with safe_open(directory / WEIGHTS, framework="pt") as file:
        most = len(file.keys())
    for name in _LAYERS & encoder.keys():  # loading the weights checks all other sizes
        if encoder[name] is not None and not 1 <= int(encoder[name]) <= most:
            raise ValueError(f"{name} is {encoder[name]!r}, expected 1 to {most}, the number of weights")


def _loaded(encoder: str) -> Any:
    """Load a pretrained encoder, or a UBERT checkpoint.

    Raises:
        UserError: it can't be loaded.
    """
    try:
        if isinstance(AutoConfig.from_pretrained(encoder, trust_remote_code=False), UbertConfig):
            return UbertModel.load(Path(encoder))
        return AutoModel.from_pretrained(
            encoder, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].removesuffix(" Please do not set `use_safetensors=True`.")
        raise UserError(
            f"encoder {encoder!r} can't be loaded ({reason}); give a hub name or a folder with config.json and "
            "model.safetensors (a pytorch_model.bin is a pickle, and is not read: if you trust it, load it with "
            "AutoModel and AutoTokenizer, save both with `save_pretrained`, and give that folder)"
        ) from None


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the progress bars and messages of transformers: the caller reports progress and errors itself."""
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


AutoConfig.register(UbertConfig.model_type, UbertConfig)
AutoModel.register(UbertConfig, UbertModel)
