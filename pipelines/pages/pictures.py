"""Draw the pictures of the documentation: `python -m pipelines.pages.pictures` writes them to docs/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipelines.pages import overview
from pipelines.pages.drawing import BLUE, GREEN, GREY, INK, PAPER, RED, Parts, arrow, box, row, svg, text
from ubert.loader.objective_schedule import ObjectiveSchedule
from ubert.schema.specs.recipe import Trained

FOLDER = Path(__file__).resolve().parents[2] / "docs"
TOKENS = ("ada", "mar", "##low", "lives", "in", "os", "##tra", "##va", ".")
PERSON, PLACE = (0, 2), (5, 7)  # first and last token


@svg(600, 105)
def record() -> Parts:
    """Draw a text, the offsets of its mentions, and their categories."""
    words, step, left = "Ada Marlow lives in Ostrava.", 20, 20
    for i, character in enumerate(words):
        yield text(left + step * i + step / 2, 40, character)
        yield f'<g opacity="0.6" font-size="9">{text(left + step * i + step / 2, 58, str(i))}</g>'
    for start, end, label, colour in ((0, 10, "person [0, 10)", BLUE), (20, 27, "place [20, 27)", RED)):
        x, to = left + step * start, left + step * end
        yield f'<line x1="{x}" y1="68" x2="{to}" y2="68" stroke="{colour}" stroke-width="4"/>'
        yield text((x + to) / 2, 88, label, colour)


@svg(655, 150)
def corpus() -> Parts:
    """Draw how source files become records, or rejects with their reasons."""
    yield from box(10, 50, 110, "source files")
    yield arrow(120, 64, 160, 64)
    yield from box(163, 50, 100, "reader", GREY)
    yield arrow(263, 64, 303, 64)
    yield from box(306, 50, 90, "map", GREY)
    yield arrow(396, 64, 460, 34)
    yield arrow(396, 64, 460, 94)
    yield from box(463, 20, 180, "kept: part-*.parquet", BLUE)
    yield from box(463, 80, 180, "rejects-*.parquet", RED)
    yield text(325, 135, "rows = kept + rejected, for each file; manifest.json is written last")


@svg(655, 140)
def mixture() -> Parts:
    """Draw how many records three policies draw from corpora of 10,000 and 100 records."""
    policies = (("proportional", 1000, 10), ("temperature 2", 918, 92), ("equal", 505, 505))
    for i, (name, reviews, trec) in enumerate(policies):
        y, middle = 15 + 38 * i, 150 + 400 * reviews / 1010
        yield text(140, y + 18, name, anchor="end")
        yield f'<rect x="150" y="{y}" width="{middle - 150:g}" height="28" fill="{BLUE}"/>'
        yield f'<rect x="{middle:g}" y="{y}" width="{550 - middle:g}" height="28" fill="{RED}"/>'
        yield text(160, y + 18, f"reviews {reviews:,}", PAPER, anchor="start")
        yield text(560, y + 18, f"trec {trec}", RED, anchor="start")


@svg(600, 185)
def shard() -> Parts:
    """Draw a text, its prompts in a separate file, and its annotations as cells."""
    yield text(10, 25, "shard-*.arrow: each text once", anchor="start")
    colours = {i: BLUE for i in range(PERSON[0], PERSON[1] + 1)}
    colours |= {i: RED for i in range(PLACE[0], PLACE[1] + 1)}
    yield from row(10, 35, TOKENS, colours)
    yield text(10, 90, "gold cells", anchor="start")
    yield from box(110, 72, 90, "0, 0, 2", BLUE)
    yield from box(205, 72, 90, "1, 5, 7", RED)
    yield text(310, 90, "category, first token, last token", anchor="start")
    yield text(10, 135, "categories.arrow: the words of all prompts once", anchor="start")
    yield from row(10, 145, ("people and places", "person", "place"), {1: BLUE, 2: RED})


@svg(660, 305)
def structure_table() -> Parts:
    """Draw the tables of two categories over the tokens of a text."""
    yield from _table(80, "person", PERSON, BLUE)
    yield from _table(400, "place", PLACE, RED)


def _table(left: float, name: str, gold: tuple[int, int], colour: str) -> Parts:
    size, top = 24, 60
    yield text(left + size * len(TOKENS) / 2, top + size * len(TOKENS) + 20, name, colour)
    for i, token in enumerate(TOKENS):
        yield text(left - 6, top + size * i + 16, token, anchor="end")
        x, y = left + size * i + size / 2 + 4, top - 4
        yield f'<g transform="rotate(-50 {x:g} {y})">{text(x, y, token, anchor="start")}</g>'
        for j in range(len(TOKENS)):
            fill = colour if (i, j) == gold else GREY if i <= j else PAPER
            place = f'x="{left + size * j:g}" y="{top + size * i:g}"'
            yield f'<rect {place} width="{size}" height="{size}" fill="{fill}" stroke="{INK}" stroke-width="0.5"/>'


@svg(760, 170)
def layouts() -> Parts:
    """Draw the sequences of two categories in both layouts."""
    words = ("ada", "…", ".", "[SEP]")
    yield text(10, 22, "joint: one sequence", anchor="start")
    prompt = ("[CLS]", "people and places", "[SEP]", "[C]", "person", "[C]", "place", "[SEP]")
    yield from row(10, 30, (*prompt, *words), {4: BLUE, 6: RED})
    yield text(10, 88, "stacked: a sequence for each category", anchor="start")
    for i, (name, colour) in enumerate((("person", BLUE), ("place", RED))):
        sequence = ("[CLS]", "people and places", "[SEP]", name, "[SEP]", *words)
        yield from row(10, 96 + 34 * i, sequence, {0: colour})


@svg(630, 110)
def objectives() -> Parts:
    """Draw which objective each of twenty steps trains."""
    shares: dict[Trained, float] = {"structure": 0.6, "spanbert": 0.3, "seq2seq": 0.1}
    colours = dict(zip(shares, (BLUE, RED, GREEN), strict=True))
    turn = ObjectiveSchedule(shares)
    for step in range(20):
        yield from box(10 + 30 * step, 20, 27, str(step), colours[turn(step)[0]])
    for i, (name, share) in enumerate(shares.items()):
        yield from box(10 + 200 * i, 65, 170, f"{name} {share:g}", colours[name])


PICTURES: dict[str, Callable[[], str]] = {
    "assets/pipeline": overview.pipeline,
    "assets/comparison": overview.comparison,
    "assets/few_shot": overview.few_shot,
    "assets/zero_shot": overview.zero_shot,
    "concepts/record": record,
    "concepts/corpus": corpus,
    "concepts/mixture": mixture,
    "concepts/shard": shard,
    "concepts/structure-table": structure_table,
    "concepts/layouts": layouts,
    "concepts/objectives": objectives,
}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
