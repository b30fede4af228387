"""Low-rank adapters (LoRA, Hu et al. 2021) of an encoder's linear layers, by peft."""

from __future__ import annotations

from importlib.util import find_spec

from torch import nn

from ubert.schema.errors import UserError

SCALE = 2  # alpha / rank


def add(encoder: nn.Module, rank: int) -> None:
    """Put an adapter of this rank beside each linear layer; nothing else of the encoder is trained from then on.

    Raises:
        UserError: peft is not installed.
    """
    if find_spec("peft") is None:
        raise UserError("adapters (`lora` of a recipe) need the package peft; run pip install 'ubert[lora]'")
    import peft  # takes a second

    config = peft.LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules="all-linear")
    peft.inject_adapter_in_model(config, encoder)


def freeze(encoder: nn.Module) -> None:
    """Let nothing but the adapters be trained."""
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad = ".lora_" in name


def merge(encoder: nn.Module) -> None:
    """Add the adapters to the layers that they stand beside, and leave plain layers."""
    from peft.tuners.lora import LoraLayer

    for name, layer in [(n, m) for n, m in encoder.named_modules() if isinstance(m, LoraLayer)]:
        layer.merge()
        encoder.set_submodule(name, layer.get_base_layer())
    del encoder.peft_config  # peft's note that it has been here
