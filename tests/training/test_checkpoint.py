"""Checkpoints: complete or absent, verified, without pickle."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tiny_run import full_disk, make_encoder, make_recipe
from tokenizers.models import WordLevel

from ubert.model.tokenizer import Tokenizer, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.errors import UserError
from ubert.training.checkpoints import checkpoint
from ubert.training.checkpoints.checkpoint import State
from ubert.training.checkpoints.saving import Writer
from ubert.training.optimizer import adamw

Parts = tuple[UbertModel, Tokenizer, torch.optim.AdamW, State]


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """A model whose optimizer has taken a step."""
    encoder = make_encoder(tmp_path / "encoder")
    tokenizer = load_tokenizer(str(encoder))
    model = UbertModel.new(str(encoder), Shape(table_size=8), vocabulary=tokenizer.vocabulary, seed=0)
    recipe = make_recipe(encoder)
    optimizer = adamw(model, recipe)
    for parameter in model.parameters():
        parameter.grad = torch.rand_like(parameter)
    optimizer.step()
    state = State(step=1, tokens=9, seconds=0.5, loss=2.0, recipe=recipe, shards="s", tokenizer=tokenizer.hash)
    return model, tokenizer, optimizer, state


def save(run: Path, parts: Parts, step: int) -> Path:
    model, tokenizer, optimizer, state = parts
    return checkpoint.save(
        run, model, tokenizer, checkpoint.tensors(model, optimizer), state.model_copy(update={"step": step})
    )


def test_reads_back_what_was_saved(tmp_path: Path, parts: Parts) -> None:
    model, tokenizer, optimizer, state = parts
    directory = save(tmp_path, parts, 1)
    loaded = UbertModel.load(directory)
    again = adamw(loaded, state.recipe)
    checkpoint.load_training(directory, loaded, again)

    assert checkpoint.read_state(directory).model_copy(update={"files": {}}) == state
    assert load_tokenizer(str(directory)).hash == tokenizer.hash
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters(), strict=True))
    before, after = optimizer.state_dict()["state"], again.state_dict()["state"]
    assert before.keys() == after.keys() and len(before) == len(list(model.parameters()))
    for index, kinds in before.items():
        assert kinds.keys() == after[index].keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(kinds[kind], after[index][kind]) for kind in kinds)


def test_others_may_read_it_if_they_may_read_new_files(tmp_path: Path, parts: Parts) -> None:
    (new := tmp_path / "new").touch()
    files = list(save(tmp_path, parts, 1).iterdir())
    assert {path.stat().st_mode for path in files} == {new.stat().st_mode}, files


def test_the_newest_by_number_is_the_latest(tmp_path: Path, parts: Parts) -> None:
    assert checkpoint.latest(tmp_path) is None
    save(tmp_path, parts, 999_999)
    newest = save(tmp_path, parts, 1_000_000)
    assert checkpoint.latest(tmp_path) == newest


def test_half_written_is_invisible_and_removed(tmp_path: Path, parts: Parts) -> None:
    whole = save(tmp_path, parts, 1)
    half = whole.with_name(".half-step-000002")
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert checkpoint.latest(tmp_path) == whole
    checkpoint.remove_halves(tmp_path)
    assert not half.exists() and whole.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "config.json", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_one_falls_back(
    tmp_path: Path, parts: Parts, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    before = save(tmp_path, parts, 1)
    broken = save(tmp_path, parts, 2)
    path = broken / name
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 0x80
        path.write_bytes(content)
    else:
        path.unlink()
    with caplog.at_level(logging.WARNING):
        assert checkpoint.latest(tmp_path) == before
    assert f"{broken} is damaged" in caplog.text and "using step-000001, an earlier one" in caplog.text


def test_a_state_that_says_something_else_is_not_used(tmp_path: Path, parts: Parts) -> None:
    directory = save(tmp_path, parts, 500)
    checkpoint.check(directory)
    path = directory / "state.json"
    written = path.read_text(encoding="utf-8")
    digits = [place for place, letter in enumerate(written) if letter.isdigit()][::5]
    assert written[digits[0]] == "5"
    for place in digits:
        path.write_text(f"{written[:place]}{int(written[place]) ^ 1}{written[place + 1 :]}", encoding="utf-8")
        with pytest.raises(UserError, match="not a complete checkpoint"):
            checkpoint.check(directory)


def test_a_checkpoint_under_the_name_of_another_step_is_not_used(tmp_path: Path, parts: Parts) -> None:
    before, moved = save(tmp_path, parts, 1), save(tmp_path, parts, 2).with_name("step-000003")
    moved.with_name("step-000002").rename(moved)
    assert checkpoint.latest(tmp_path) == before
    with pytest.raises(UserError, match=r"state\.json is of step 2"):
        checkpoint.check(moved)


def test_a_damaged_one_is_replaced_when_its_step_is_done_again(tmp_path: Path, parts: Parts) -> None:
    before = save(tmp_path, parts, 1)
    (save(tmp_path, parts, 2) / "model.safetensors").write_bytes(b"")
    assert checkpoint.latest(tmp_path) == before
    assert save(tmp_path, parts, 2) == checkpoint.latest(tmp_path)


@pytest.mark.parametrize(("keep", "kept"), [(1, [0, 250]), (2, [0, 200, 250])])
def test_damaged_ones_are_not_kept_in_place_of_what_a_resumed_run_writes(
    tmp_path: Path, parts: Parts, keep: int, kept: list[int]
) -> None:
    """The run resumes from step 200, and writes the next checkpoint before those that are damaged."""
    model, tokenizer, optimizer, state = parts
    for step in (0, 100, 200):
        save(tmp_path, parts, step)
    for step in (300, 400):
        (save(tmp_path, parts, step) / "model.safetensors").write_bytes(b"")
    assert checkpoint.latest(tmp_path) == checkpoint.directory_of(tmp_path, 200)
    writer = Writer(tmp_path, keep)
    tensors = checkpoint.tensors(model, optimizer)
    writer.save(model, tokenizer, tensors, state.model_copy(update={"step": 250}))
    writer.wait()
    writer.close()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [f"step-{step:06}" for step in kept]
    assert checkpoint.latest(tmp_path) == checkpoint.directory_of(tmp_path, 250)


def test_where_all_are_damaged_nothing_starts_anew(tmp_path: Path, parts: Parts) -> None:
    for step in (1, 2):
        (save(tmp_path, parts, step) / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"all checkpoints are damaged, the newest because model\.safetensors has changed"
    ):
        checkpoint.latest(tmp_path)


def test_of_equally_good_ones_the_newest_is_the_best(tmp_path: Path, parts: Parts) -> None:
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, 0.9), (4, None)):
        metrics = {} if accuracy is None else {"c/test/accuracy": accuracy, "c/test/rmse": accuracy}
        save(tmp_path, (*parts[:3], parts[3].model_copy(update={"metrics": metrics})), step)
    assert checkpoint.best_by(tmp_path, "c/test/accuracy") == tmp_path / "checkpoints/step-000003"
    assert checkpoint.best_by(tmp_path, "c/test/rmse") == tmp_path / "checkpoints/step-000001"
    assert checkpoint.best_by(tmp_path, "d/test/accuracy") is None


def test_a_damaged_one_is_not_the_best(tmp_path: Path, parts: Parts) -> None:
    for step, accuracy in ((1, 0.5), (2, 0.9), (3, 0.4)):
        save(tmp_path, (*parts[:3], parts[3].model_copy(update={"metrics": {"c/test/accuracy": accuracy}})), step)
    assert checkpoint.best_by(tmp_path, "c/test/accuracy") == tmp_path / "checkpoints/step-000002"
    (tmp_path / "checkpoints/step-000002/optimizer.safetensors").write_bytes(b"")
    assert checkpoint.best_by(tmp_path, "c/test/accuracy") == tmp_path / "checkpoints/step-000001"


def test_keeps_the_newest_and_the_one_before_training(tmp_path: Path, parts: Parts) -> None:
    for step in range(5):
        save(tmp_path, parts, step)
        checkpoint.prune(tmp_path, keep=2)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-000000", "step-000003", "step-000004"]


@pytest.mark.parametrize("largest", ["model.safetensors", "tokenizer.json", "optimizer.safetensors", "state.json"])
def test_a_full_disk_leaves_nothing_incomplete(tmp_path: Path, parts: Parts, largest: str) -> None:
    """It has room for all files but one."""
    model, tokenizer, optimizer, state = parts
    if largest == "model.safetensors":
        optimizer = adamw(model, state.recipe)
    elif largest == "tokenizer.json":
        long = WordLevel({"x" * 1_000_000: 0}, unk_token="x")
        tokenizer = Tokenizer(tokenizers.Tokenizer(long), tokenizer.special)
    elif largest == "state.json":
        state = state.model_copy(update={"metrics": {f"corpus/test/{i}": 0.5 for i in range(30_000)}})
    parts = model, tokenizer, optimizer, state
    before = save(tmp_path, parts, 1)
    sizes = {path.name: path.stat().st_size for path in before.iterdir()}
    assert max(sizes, key=sizes.__getitem__) == largest
    with (
        full_disk(sizes[largest] - 1000),
        pytest.raises(UserError, match=r"step-000002: the checkpoint cannot be written .* free some disk space"),
    ):
        save(tmp_path, parts, 2)
    assert list((tmp_path / "checkpoints").iterdir()) == [before]


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "optimizer.pt", "optimizer.safetensors", "model.safetensors"]
)
def test_a_planted_pickle_is_never_read(tmp_path: Path, parts: Parts, name: str) -> None:
    """It would leave a mark if it were."""
    directory = save(tmp_path, parts, 1)
    mark = tmp_path / "mark"
    (directory / name).write_bytes(pickle.dumps(Planted(str(mark))))
    model, _, optimizer, _ = parts
    if name.endswith(".safetensors"):
        with pytest.raises(UserError, match="damaged"):
            checkpoint.latest(tmp_path)
        with pytest.raises((UserError, SafetensorError)):
            UbertModel.load(directory)
            checkpoint.load_training(directory, model, optimizer)
    else:
        UbertModel.load(directory)
        checkpoint.load_training(directory, model, optimizer)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Planted(str(mark))))  # noqa: S301
    assert mark.exists(), "the planted pickle does what it is feared for"


def test_a_pickle_planted_as_an_encoder_is_never_read(tmp_path: Path) -> None:
    encoder, mark = make_encoder(tmp_path / "encoder"), tmp_path / "mark"
    (encoder / "model.safetensors").unlink()
    pickled = encoder / "pytorch_model.bin"
    pickled.write_bytes(pickle.dumps(Planted(str(mark))))
    cure = r"model\.safetensors .*; give .* \(a pytorch_model\.bin is a pickle, and is not read: .*save_pretrained"
    with pytest.raises(UserError, match=cure):
        UbertModel.new(str(encoder), Shape(table_size=8), vocabulary=9, seed=0)
    assert not mark.exists()


def test_weights_of_an_encoder_are_not_read_from_a_pickle_of_plain_tensors(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path / "encoder")
    weights = encoder / "model.safetensors"
    torch.save(load_file(weights), encoder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(UserError, match="is not read"):
        UbertModel.new(str(encoder), Shape(table_size=8), vocabulary=9, seed=0)


class Planted:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.path,)


def test_no_file_is_a_pickle(tmp_path: Path, parts: Parts) -> None:
    files = sorted(save(tmp_path, parts, 1).iterdir())
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    for path in files:
        start = path.read_bytes()[:9]
        assert start[0] != 0x80 and start[:2] != b"PK", f"{path.name} begins as a pickle or a zip of pickles does"
        assert start[:1] == b"{" if path.suffix == ".json" else start[8:9] == b"{"


def test_what_is_written_beside_training_is_what_was_there_when_it_was_saved(tmp_path: Path, parts: Parts) -> None:
    """The weights change at once after each save; the second save goes over the first one's copy."""
    model, tokenizer, optimizer, state = parts
    writer = Writer(tmp_path, keep=9)
    expected = {}
    for step in (1, 2):
        expected[step] = [p.detach().clone() for p in model.parameters()]
        tensors = checkpoint.tensors(model, optimizer)
        writer.save(model, tokenizer, tensors, state.model_copy(update={"step": step}))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
    writer.wait()
    writer.close()
    for step, weights in expected.items():
        loaded = UbertModel.load(tmp_path / f"checkpoints/step-{step:06}")
        assert all(torch.equal(a, b) for a, b in zip(weights, loaded.parameters(), strict=True))


def test_a_save_that_fails_beside_training_is_reported_once(tmp_path: Path, parts: Parts) -> None:
    model, tokenizer, optimizer, state = parts
    (tmp_path / "checkpoints").write_text("a file where the folder would be", encoding="utf-8")
    writer = Writer(tmp_path, keep=9)
    writer.save(model, tokenizer, checkpoint.tensors(model, optimizer), state)
    with pytest.raises(UserError, match="step-000001: the checkpoint cannot be written"):
        writer.wait()
    writer.check()
    writer.close()


def test_a_save_that_failed_is_reported_by_the_next_check(tmp_path: Path, parts: Parts) -> None:
    model, tokenizer, optimizer, state = parts
    written: list[int] = []
    writer = Writer(
        tmp_path, keep=1, written=lambda: written.append(len(list((tmp_path / "checkpoints").iterdir())))
    )
    for step in (0, 1, 2):
        writer.save(
            model, tokenizer, checkpoint.tensors(model, optimizer), state.model_copy(update={"step": step})
        )
    writer.wait()
    assert written == [1, 2, 3], "older ones are still there"
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["step-000000", "step-000002"], "the one before training and the newest"
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    (tmp_path / "checkpoints").write_text("a file where the folder would be", encoding="utf-8")
    writer.save(model, tokenizer, checkpoint.tensors(model, optimizer), state)
    writer.close()  # waits for it
    with pytest.raises(UserError, match="step-000001: the checkpoint cannot be written"):
        writer.check()
    writer.check()
    assert len(written) == 3
