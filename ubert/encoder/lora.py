"""Low-rank adapters (LoRA, Hu et al. 2021) for an encoder's linear layers, with peft."""

from __future__ import annotations

from importlib.util import find_spec

from torch import nn

from ubert.schema.errors import UserError

SCALE = 2  # alpha / rank


def add(encoder: nn.Module, rank: int) -> None:
    """Add an adapter of this rank to each linear layer, and freeze the rest of the encoder.

    Raises:
        UserError: peft is not installed.
    """
    if find_spec("peft") is None:
        raise UserError("adapters (`lora` in a recipe) need the package peft; run pip install 'ubert[lora]'")
    import peft  # takes a second

    config = peft.LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules="all-linear")
    peft.inject_adapter_in_model(config, encoder)


def freeze(encoder: nn.Module) -> None:
    """Freeze all parameters but the adapters."""
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad = ".lora_" in name


def merge(encoder: nn.Module) -> None:
    """Merge the adapters into their layers, and restore plain layers."""
    from peft.tuners.lora import LoraLayer

    for name, layer in [(n, m) for n, m in encoder.named_modules() if isinstance(m, LoraLayer)]:
        layer.merge()
        encoder.set_submodule(name, layer.get_base_layer())
    del encoder.peft_config  # peft's mark on an encoder with adapters
