"""The documentation pages: they build without a warning, ask nothing of other addresses, and say what is so."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from pipelines.pages import pictures

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
CONCEPTS = ["record", "corpus", "mixture", "shard", "structure-table", "layouts", "objectives"]


def test_the_examples_of_the_concepts_are_right() -> None:
    """They follow one another: the record of the first page is that of all."""
    names: dict[str, object] = {}
    for name in CONCEPTS:
        page = (DOCS / "concepts" / f"{name}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```pycon\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        assert blocks and f"({name}.svg)" in page
        example = doctest.DocTestParser().get_doctest("\n".join(blocks), names, name, None, 0)
        said: list[str] = []
        failed = doctest.DocTestRunner().run(example, out=said.append, clear_globs=False).failed
        assert not failed, "".join(said)
        names = example.globs


@pytest.mark.parametrize("name", CONCEPTS)
def test_pictures_are_those_of_their_script(name: str) -> None:
    drawn = (DOCS / "concepts" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.PICTURES[name](), "run `python -m pipelines.pages.pictures`"
