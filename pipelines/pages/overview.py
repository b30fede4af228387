"""Draw the pictures of the README and the results: the pipeline, and comparisons of trained models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.pages.drawing import BLUE, GREEN, GREY, INK, RED, Parts, arrow, box, picture, svg, text

STAGES = (  # a stage, its format, and the command that makes the next one
    ("sources", "any format", "ingest"),
    ("corpora", "Parquet", "mix"),
    ("mixture", "drawn by SQL", "shard"),
    ("shards", "Arrow", "pretrain"),
    ("model", "safetensors", "predict"),
)
# F1 from docs/results.md, "One recipe, one task": seed 0, the same encoder, the same training time on one CPU.
MODELS = (("ubert", BLUE), ("head for the one task", GREEN), ("GLiNER", RED))
SCORES = {
    "mit_movie": (0.739, 0.669, 0.191),
    "wnut17": (0.381, 0.344, 0.037),
    "bionlp_ge": (0.517, 0.517, 0.102),
}
# docs/results.md, "universal-small": five shots of each category, means of three draws.
STARTS = (("universal-small", BLUE), ("MiniLM", GREY))
FIVE_SHOTS = {
    "wnut17": (0.347, 0.025),
    "ade_corpus": (0.402, 0.000),
    "tweeteval_emotion": (0.684, 0.431),
    "mams_absa": (0.315, 0.156),
    "restaurant8k": (0.636, 0.429),
    "trec_fine": (0.633, 0.356),
    "rte": (0.628, 0.521),
    "pubmedqa": (0.451, 0.353),
    "trec": (0.660, 0.614),
}
# docs/results.md, "Zero-shot": the mean of eight held-out corpora after these millions of tokens.
ZERO_SHOT = {0.9: 0.266, 3.4: 0.369, 7.3: 0.419, 11.3: 0.427, 20.0: 0.431, 26.1: 0.457, 33.5: 0.491}


@svg(870, 150)
def pipeline() -> Parts:
    """Draw the stages from left to right, and the commands between them."""
    width, step = 96, 158
    for i, (name, form, command) in enumerate(STAGES):
        x = 10 + step * i
        yield from box(x, 45, width, name, BLUE if name == "model" else GREY, height=34)
        yield text(x + width / 2, 98, form)
        yield text(x + width + (step - width) / 2, 34, command, BLUE)
        yield arrow(x + width, 62, x + step - 3, 62)
    yield text(10 + step * len(STAGES), 66, "answers", anchor="start")
    yield arrow(137, 62, 137, 118)
    yield text(137, 138, "rejects, each with its reason", RED)


def comparison() -> str:
    """Draw three bars for each corpus, one for each way to train."""
    return _bars(MODELS, SCORES, left=110)


def few_shot() -> str:
    """Draw two bars for each held-out corpus, one for each model to start from."""
    return _bars(STARTS, FIVE_SHOTS, left=150)


def zero_shot() -> str:
    """Draw the mean zero-shot score over the tokens of the training."""
    left, bottom, across, up = 60, 230, 20, 400  # pixels of a million tokens, and of a score of 1

    def parts() -> Parts:
        points = [(left + across * tokens, bottom - up * score) for tokens, score in ZERO_SHOT.items()]
        yield f'<path d="M{left} 20V{bottom}H{left + across * 30}" fill="none" stroke="{INK}"/>'
        for score in (0.1, 0.2, 0.3, 0.4, 0.5):
            yield text(left - 10, bottom - up * score + 4, f"{score}", anchor="end")
        for tokens in (5, 10, 15, 20, 25, 30):
            yield text(left + across * tokens, bottom + 18, f"{tokens}")
        yield text(left + across * 15, bottom + 38, "million tokens")
        line = " ".join(f"{x:g},{y:g}" for x, y in points)
        yield f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>'
        for (x, y), score in zip(points, ZERO_SHOT.values(), strict=True):
            yield f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{BLUE}"/>'
            yield text(x, y + 20, f"{score:.3f}", anchor="start")

    return picture(left + across * 30 + 30, bottom + 50, parts())


def _bars(sides: Sequence[tuple[str, str]], scores: Mapping[str, Sequence[float]], left: int) -> str:
    """Draw a bar for each side of each corpus, from 0 to 1."""
    scale, step = 480, 17 + 21 * len(sides)
    bottom = 55 + step * len(scores) - 10

    def parts() -> Parts:
        for i, (name, colour) in enumerate(sides):
            yield from box(left + 180 * i, 10, 170, name, colour)
        for i, (corpus, of_sides) in enumerate(scores.items()):
            top = 55 + step * i
            yield text(left - 10, top + step / 2 - 5, corpus, anchor="end")
            for j, (score, (_, colour)) in enumerate(zip(of_sides, sides, strict=True)):
                bar = f'x="{left}" y="{top + 21 * j}" width="{scale * score:g}" height="18"'
                yield f'<rect {bar} fill="{colour}"/>'
                yield text(left + scale * score + 6, top + 21 * j + 14, f"{score:.3f}", anchor="start")
        yield f'<line x1="{left}" y1="50" x2="{left}" y2="{bottom}" stroke="{INK}"/>'

    return picture(left + 550, bottom + 10, parts())
