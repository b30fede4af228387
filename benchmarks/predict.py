"""Prediction: our `Predictor` against the public UBERT implementation's method, on the same encoder.

Theirs makes a sequence per category, padded to 128 tokens, and takes eight texts at a time in input order. It
scores a dense table for each sequence, even for classification, and reads the cells above the threshold. Ours puts
all categories into one sequence (joint) or makes one per category (stacked). It sorts texts by length, pads to the
longest of a batch, and scores the cells in tiles. The texts are our samples.

With `--against gliner`, ours is compared with the package `gliner` instead: a model of the same encoder by its own
configuration, called as its users call it, in batches of 8 (its default). Both models are untrained. With a
threshold of 0.99, neither spends time on decoding. `pip install gliner==0.2.29` first. With `--device cuda`
both are on a GPU, with 10 and 100 categories, and gliner has batches of 8 and of 256, in float32 and in bfloat16.

Ours is also compared with itself: one text with 50 categories against 5 and against 1 (`latency`), and short texts
in one call against one at a time.

    python benchmarks/predict.py [--quick] [--threads 2] [--against gliner [--texts 10000] [--device cuda]]
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
from measure import ENCODER, report, seconds
from torch import Tensor

from ubert.inference.predictor import Predictor
from ubert.inference.scoring import most_categories
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.specs.recipe import Layout

LENGTH, BATCH = 128, 8  # settings of theirs
TYPES = [
    "person", "firm", "place", "date", "product", "amount", "event", "law", "language", "award", "title",
    "job", "animal", "plant", "disease", "drug", "gene", "protein", "book", "film", "song", "game", "sport",
    "team", "school", "church", "river", "mountain", "bridge", "road", "ship", "train", "car", "weapon",
    "food", "drink", "dish", "tool", "currency", "unit", "religion", "party", "ministry", "court", "hospital",
    "museum", "hotel", "bank", "star", "planet",
]  # fmt: skip
MORE = [f"old {name}" for name in TYPES]
SAMPLES = Path(__file__).parents[1] / "corpus_specs" / "samples"


@torch.inference_mode()
def reference(
    model: UbertModel, tokenizer: Tokenizer, texts: Sequence[str], categories: Sequence[str]
) -> list[list[tuple[int, int, int]]]:
    """Return the cells (category, start, end) of each text that score above 0 in dense tables."""
    special = tokenizer.special
    found = []
    for first in range(0, len(texts), BATCH):
        batch = texts[first : first + BATCH]
        ids = torch.full((len(batch) * len(categories), LENGTH), special.pad)
        for row, (text, category) in enumerate((text, category) for text in batch for category in categories):
            prompt, body = (encoding.ids.tolist() for encoding in tokenizer.encode([f"ner {category}", text]))
            sequence = [special.cls, *prompt, special.sep, *body, special.sep][:LENGTH]
            ids[row, : len(sequence)] = torch.tensor(sequence)
        table = dense_table(model, ids, ids != special.pad)
        table = table.unflatten(0, (len(batch), len(categories)))
        found += [[tuple(cell) for cell in torch.nonzero(one > 0).tolist()] for one in table]
    return found


def dense_table(model: UbertModel, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """Compute scores [B, L, L] as in section 3.1 of the UBERT paper."""
    assert model.table is not None
    hidden_BLD = model.encoder(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
    one_BL1 = torch.ones(*ids_BL.shape, 1)
    start_BLd = torch.cat([torch.nn.functional.gelu(model.table.start(hidden_BLD)), one_BL1], -1)
    end_BLd = torch.cat([torch.nn.functional.gelu(model.table.end(hidden_BLD)), one_BL1], -1)
    return torch.einsum("bid,de,bje->bij", start_BLd, model.table.U, end_BLd)


def samples(n: int) -> list[str]:
    """Return n texts of the committed samples, repeated as needed."""
    reviews = (SAMPLES / "sample_reviews" / "train-000.jsonl").read_text(encoding="utf-8").splitlines()
    with (SAMPLES / "sample_topics" / "train-000.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    texts += [json.loads(line)["text"] for line in reviews]
    return (texts * (n // len(texts) + 1))[:n]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer texts and runs: within a minute")
    parser.add_argument("--threads", type=int, default=2, help="with 1, CPU seconds are counted")
    parser.add_argument("--against", choices=("public", "gliner"), default="public", help="what to compare with")
    parser.add_argument("--texts", type=int, default=10_000, help="texts to compare with gliner on")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compare with gliner")
    given = parser.parse_args()
    if given.device == "cuda" and given.against != "gliner":
        parser.error("--device cuda compares with gliner alone; add --against gliner")
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.threads == 1 else time.perf_counter
    tokenizer = load_tokenizer(ENCODER)
    if given.device == "cuda":
        gliner_on_gpu(tokenizer, given.texts, 1 if given.quick else 3)
        return
    if given.against == "gliner":
        gliner(tokenizer, 20 if given.quick else given.texts, 1 if given.quick else 3, clock)
        return
    texts = samples(4 if given.quick else 12)
    runs = 1 if given.quick else 3
    layouts: tuple[Layout, ...] = ("joint", "stacked")
    joint, stacked = (
        UbertModel.new(encoder_path(ENCODER), Shape(layout), vocabulary=tokenizer.vocabulary, seed=0)
        for layout in layouts
    )
    for task, categories in (("classification", TYPES[:6]), ("ner", TYPES[:12])):
        for layout, model in (("joint", joint), ("stacked", stacked)):
            predictor = Predictor(model, tokenizer)
            ours, theirs = seconds(
                partial(predictor.predict, texts, task=task, categories=categories),
                partial(reference, stacked, tokenizer, texts, categories),
                runs,
                clock,
            )
            case = f"{task}, {len(categories)} categories, {layout}"
            report("predict", case, len(texts) / ours, len(texts) / theirs, "texts/s", runs, more=True)
    short = [text[:60] for text in samples(32 if given.quick else 256)]
    predictor = Predictor(joint, tokenizer)
    ask = partial(predictor.predict, task="ner", categories=TYPES[:5])
    together, alone = seconds(partial(ask, short), lambda: [ask([text]) for text in short], runs, clock)
    report(
        "predict",
        "short texts, together / one by one",
        len(short) / together,
        len(short) / alone,
        "texts/s",
        runs,
        more=True,
    )
    latency(joint, tokenizer, 3 if given.quick else 9, clock)
    narrow, wide = Shape("joint", categories_per_piece=16), Shape("joint", categories_per_piece=64, max_tokens=512)
    for shape in (narrow, wide):
        model = UbertModel.new(encoder_path(ENCODER), shape, vocabulary=tokenizer.vocabulary, seed=0)
        latency(model, tokenizer, 3 if given.quick else 9, clock)


def gliner(tokenizer: Tokenizer, n: int, runs: int, clock: Callable[[], float]) -> None:
    """Compare the mentions of 10 categories in n short texts with the package `gliner`, and one text with 50
    categories against 1 on each side."""
    from gliner import GLiNER, GLiNERConfig

    model = UbertModel.new(encoder_path(ENCODER), Shape("joint"), vocabulary=tokenizer.vocabulary, seed=0)
    peer = GLiNER.from_config(GLiNERConfig(model_name=encoder_path(ENCODER))).eval()
    texts = [text[:60] for text in samples(n)]
    for precision in ("auto", "fp32"):
        ours, theirs = seconds(
            partial(
                Predictor(model, tokenizer, precision=precision).predict,
                texts,
                task="ner",
                categories=TYPES[:10],
                threshold=0.99,
            ),
            partial(peer.inference, texts, TYPES[:10], threshold=0.99),
            runs,
            clock,
        )
        case = f"{n} texts, 10 categories, {precision}"
        report("predict", case, n / ours, n / theirs, "texts/s", runs, more=True)
    latency(model, tokenizer, 3 * runs, clock)
    fifty, one = seconds(
        partial(peer.inference, samples(2)[1:], TYPES, threshold=0.99),
        partial(peer.inference, samples(2)[1:], TYPES[:1], threshold=0.99),
        3 * runs,
        clock,
    )
    report("predict", "gliner's latency, 50 categories / 1", fifty * 1e3, one * 1e3, "ms", 3 * runs)


def gliner_on_gpu(tokenizer: Tokenizer, n: int, runs: int) -> None:
    """Compare the mentions in n short texts with the package `gliner`, both on a GPU."""
    from gliner import GLiNER, GLiNERConfig

    model = UbertModel.new(encoder_path(ENCODER), Shape("joint"), vocabulary=tokenizer.vocabulary, seed=0)
    predictor = Predictor(model.to("cuda"), tokenizer)  # type: ignore[arg-type]
    peer = GLiNER.from_config(GLiNERConfig(model_name=encoder_path(ENCODER))).eval().to("cuda")
    texts = [text[:60] for text in samples(n)]

    def theirs(categories: list[str], size: int, half: bool) -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            peer.inference(texts, categories, threshold=0.99, batch_size=size)

    for categories, size, half in product((TYPES[:10], [*TYPES, *MORE]), (BATCH, 256), (False, True)):
        ours, others = seconds(
            partial(predictor.predict, texts, task="ner", categories=categories, threshold=0.99),
            partial(theirs, categories, size, half),
            runs,
        )
        case = f"GPU, {n} texts, {len(categories)} categories, gliner: {'bf16' if half else 'fp32'}, {size} texts"
        report("predict", case, n / ours, n / others, "texts/s", runs, more=True)


def latency(model: UbertModel, tokenizer: Tokenizer, runs: int, clock: Callable[[], float]) -> None:
    ask = partial(Predictor(model, tokenizer).predict, task="ner", threshold=0.99)
    texts = (samples(2)[1], " ".join(samples(7)), " ".join(samples(10)))
    for text, few in product(texts, (5, 1)):
        many, less = seconds(
            partial(ask, [text], categories=TYPES), partial(ask, [text], categories=TYPES[:few]), runs, clock
        )
        tokens = len(tokenizer.encode([text])[0].ids)
        piece = most_categories(model.shape.categories_per_piece, len(TYPES))
        read = f"{piece} categories a piece, windows of {model.shape.max_tokens} tokens"
        case = f"latency, {len(TYPES)} categories / {few}, {tokens} tokens, {read}"
        report("predict", case, many * 1e3, less * 1e3, "ms", runs)


if __name__ == "__main__":
    main()
