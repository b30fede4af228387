"""Export a model, encoder and structure table, as one ONNX file with equal scores.

Inputs: `ids`, `mask`, `types` [pieces, tokens] as in `batch.Batch` (`types` if the encoder has segment
types); for each table its piece and the position of its anchor there, `piece` and `anchor` [tables]. Outputs,
as logits: `anchors` [tables], and `cells` [tables, tokens, tokens], a score for each start and (inclusive)
end token of the piece. The caller selects the cells of the text.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from ubert.model.ubert import UbertModel
from ubert.schema.errors import UserError


class _Dense(nn.Module):
    """The model with tensors as arguments."""

    def __init__(self, model: UbertModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: Tensor, mask: Tensor, types: Tensor, piece: Tensor, anchor: Tensor
    ) -> tuple[Tensor, Tensor]:
        anchors, cells = self.model.structure_table().dense(self.model.encode(ids, mask, types), piece, anchor)
        return anchors, cells


def export(model: UbertModel, path: Path) -> None:
    """Write the model to `path`. Adapters are merged into the model.

    Raises:
        UserError: onnxscript is not installed, the model has no structure table, or the file can't be written.
    """
    if find_spec("onnxscript") is None:
        raise UserError("export needs the packages onnx and onnxscript; run pip install 'ubert[onnx]'")
    if not os.access(path.parent, os.W_OK):  # checked first, because torch writes the file last
        raise UserError(f"{path}: cannot be written (the folder is missing or not writable); choose another file")
    model.structure_table()  # raises if the model has none
    model.without_adapters()
    pieces, tokens, tables = 2, 8, 3
    ids = torch.ones(pieces, tokens, dtype=torch.int64)
    of_tables = torch.zeros(tables, dtype=torch.int64)
    of_ids = {0: torch.export.Dim("pieces"), 1: torch.export.Dim("tokens")}
    of_table = {0: torch.export.Dim("tables")}
    half = path.with_name(f".half-{path.name}")
    try:
        with _silently(), torch.no_grad():
            torch.onnx.export(
                _Dense(model).eval(),
                (ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids), of_tables, of_tables + 1),
                half,
                input_names=["ids", "mask", "types", "piece", "anchor"],
                output_names=["anchors", "cells"],
                dynamic_shapes=(of_ids, of_ids, of_ids, of_table, of_table),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        half.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); choose another file") from None
    except torch.onnx.OnnxExporterError as error:  # torch can't export the attention of some model families
        kind, reason = model.encoder.config.model_type, str(error).strip().partition("\n")[0]
        raise UserError(
            f"an encoder of type {kind!r} can't be written as ONNX ({reason}); use another type of encoder"
        ) from error
    finally:
        half.unlink(missing_ok=True)


@contextmanager
def _silently() -> Iterator[None]:
    """Silence the exporter's messages about its own progress and about packages that this model doesn't need."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(logging.NOTSET)
