"""The kernels equal the sums over tiles. Without a GPU they run in Triton's interpreter (see conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dense_tables import REGIONS, Pieces, dense_loss, make, pieces_strategy, random_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from ubert.schema.specs.recipe import Loss
from ubert.structure import cells, tiles
from ubert.structure.tiles import Factors

triton_cells = pytest.importorskip("ubert.structure.triton_cells", exc_type=ImportError)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def compare(seed: int, pieces: Pieces, conditioned: bool, kind: Loss, times: float = 1.0) -> None:
    """Loss and gradients of float32 kernels against the dense form in float64. `times`: how large scores are."""
    batch = random_batch(seed, pieces)
    head, hidden = make(seed, batch, conditioned, torch.float64)
    with torch.no_grad():
        head.U.mul_(times)
    expected = dense_loss(head, hidden, batch, "sum", kind)
    wanted = torch.autograd.grad(expected, [hidden, *head.parameters()], allow_unused=True)
    head, hidden = head.float().to(DEVICE), hidden.detach().float().to(DEVICE).requires_grad_()
    batch = batch.to(DEVICE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "_sums", lambda scores: triton_cells)
        total, _ = cells.loss(head(hidden, batch), batch, kind=kind)
        grads = torch.autograd.grad(total, [hidden, *head.parameters()], allow_unused=True)
    assert abs(total.item() - expected.item()) <= 1e-4 * max(1.0, abs(expected.item()))
    for grad, want in zip(grads, wanted, strict=True):
        if grad is not None and want is not None:
            scale = max(float(want.abs().max()), 1e-3)
            assert float((grad.cpu() - want).abs().max()) / scale < 1e-3
        else:
            assert want is None or not want.any()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), pieces_strategy, st.booleans(), st.sampled_from(["bce", "zlpr"]))
def test_loss_and_gradients_equal_the_dense_form(seed: int, pieces: Pieces, conditioned: bool, kind: Loss) -> None:
    compare(seed, pieces, conditioned, kind)


@pytest.mark.parametrize("kind", ["bce", "zlpr"])
def test_texts_of_several_blocks_equal_the_dense_form(kind: Loss) -> None:
    compare(2, [(34, REGIONS), (1, REGIONS), (17, REGIONS)], True, kind)


@pytest.mark.parametrize("kind", ["bce", "zlpr"])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_beyond_what_exp_holds_equal_the_dense_form(kind: Loss, sign: int) -> None:
    compare(5, [(34, REGIONS), (1, REGIONS)], True, kind, times=sign * 1e4)


@pytest.mark.parametrize(("width", "kernels"), [(128, True), (256, True), (257, False), (512, False)])
def test_tables_too_wide_for_the_kernels_are_summed_in_tiles(width: int, kernels: bool) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        matrix = torch.empty(3, width, device="cuda")
        factors = Factors(
            *(torch.empty((), device="cuda") if name == "bias" else matrix for name in Factors._fields)
        )
        assert cells._sums(factors) is (triton_cells if kernels else tiles)


COMPILE = """
import sys

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from ubert.structure import triton_cells

PLACES = dict.fromkeys(["tables", "texts", "gold", "first_gold"], "*i32")
for half in (True, False):
    size = triton_cells.blocks_of(128, half=half)
    types = {"blocks": "i32", "width": "i32", **PLACES, "key": "*bf16" if half else "*fp32"}
    for kernel in (triton_cells._table_sums, triton_cells._row_gradients, triton_cells._column_gradients):
        columns = size.few_columns if kernel is triton_cells._column_gradients else size.columns
        for softplus in (True, False) if "all" in sys.argv else (half,):
            fixed = {"WIDTH": 128, "SOFTPLUS": softplus, "HEIGHT": size.rows, "COLUMNS": columns}
            names = kernel.arg_names
            signature = {name: "constexpr" if name in fixed else types.get(name, "*fp32") for name in names}
            source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in fixed.items()})
            compiled = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": size.warps})
            assert compiled.asm["cubin"], kernel
            print("mma" in compiled.asm["ptx"])
"""


def compiling(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose kernels are compiled, not interpreted."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("combinations", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_the_kernels_compile_for_a_gpu_and_multiply_on_its_tensor_cores(combinations: int, tmp_path: Path) -> None:
    """Three kernels, of both precisions and both losses: each of these once, or all combinations."""
    ran = compiling(COMPILE, tmp_path, *["all"] * (combinations == 12))
    assert ran.stdout.split() == ["True"] * combinations, ran.stderr


SPECIALISED = """
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature
from ubert.structure import triton_cells

backend = make_backend(GPUTarget("cuda", 90, 32))
for kernel in (triton_cells._table_sums, triton_cells._row_gradients, triton_cells._column_gradients):
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    forms = set()
    for blocks in (1, 2, 16, 33):
        given = {p.name: torch.empty(4) for p in kernel.params} | {"blocks": blocks, "width": 128}
        given |= {p.name: 16 for p in kernel.params if p.is_constexpr}
        forms.add(str(bind(**given)[1]))
    print(len(forms))
"""


def test_a_kernel_is_compiled_once_for_texts_of_all_lengths(tmp_path: Path) -> None:
    ran = compiling(SPECIALISED, tmp_path)
    assert ran.stdout.split() == ["1"] * 3, ran.stdout + ran.stderr
