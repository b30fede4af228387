"""The two pictures of the README: the pipeline, and how a trained model compares."""

from __future__ import annotations

from pipelines.pages.drawing import BLUE, GREEN, GREY, INK, RED, Parts, arrow, box, picture, text

STAGES = (  # what lies in the store, and the command that makes the next one
    ("sources", "any format", "ingest"),
    ("corpora", "Parquet", "mix"),
    ("mixture", "drawn by SQL", "shard"),
    ("shards", "Arrow", "pretrain"),
    ("model", "safetensors", "predict"),
)
# F1 from docs/results.md, "One recipe, one task": seed 0, the same encoder, the same seconds of one processor.
MODELS = (("ubert", BLUE), ("head for the one task", GREEN), ("GLiNER", RED))
SCORES = {
    "mit_movie": (0.739, 0.669, 0.191),
    "wnut17": (0.381, 0.344, 0.037),
    "bionlp_ge": (0.517, 0.517, 0.102),
}


def pipeline() -> str:
    """The stages from left to right, and the commands between them."""
    width, step = 96, 158

    def parts() -> Parts:
        for i, (name, form, command) in enumerate(STAGES):
            x = 10 + step * i
            yield from box(x, 45, width, name, BLUE if name == "model" else GREY, height=34)
            yield text(x + width / 2, 98, form)
            yield text(x + width + (step - width) / 2, 34, command, BLUE)
            yield arrow(x + width, 62, x + step - 3, 62)
        yield text(10 + step * len(STAGES), 66, "answers", anchor="start")
        yield arrow(137, 62, 137, 118)
        yield text(137, 138, "rejects, each with its reason", RED)

    return picture(870, 150, parts())


def comparison() -> str:
    """Three bars for each corpus, one for each way to train."""
    left, scale = 110, 480

    def parts() -> Parts:
        for i, (name, colour) in enumerate(MODELS):
            yield from box(left + 180 * i, 10, 170, name, colour)
        for i, (corpus, scores) in enumerate(SCORES.items()):
            top = 55 + 80 * i
            yield text(left - 10, top + 35, corpus, anchor="end")
            for j, (score, (_, colour)) in enumerate(zip(scores, MODELS, strict=True)):
                bar = f'x="{left}" y="{top + 21 * j}" width="{scale * score:g}" height="18"'
                yield f'<rect {bar} fill="{colour}"/>'
                yield text(left + scale * score + 6, top + 21 * j + 14, f"{score:.3f}", anchor="start")
        yield f'<line x1="{left}" y1="50" x2="{left}" y2="285" stroke="{INK}"/>'

    return picture(660, 295, parts())
