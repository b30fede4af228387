"""The documentation pages: they build without a warning, load nothing from elsewhere, and state facts."""

from __future__ import annotations

import doctest
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from typer.main import get_command

from pipelines.cli.commands import app
from pipelines.pages import overview, pictures
from pipelines.pages.hook import PAGES, notebook
from pipelines.pages.markdown import markdown_table
from pipelines.pages.symbols import line, with_lines
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
MODULES = {path.name for folder in ("pipelines", "ubert") for path in (REPOSITORY / folder).rglob("*.py")}
CONCEPTS = ["record", "corpus", "mixture", "shard", "structure-table", "layouts", "objectives"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages. A wrong link or anchor, or a page that no other leads to, would raise."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(REPOSITORY / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


class Loaded(HTMLParser):
    """Addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag != "a":
            self.addresses += [given.get("src") or "", given.get("href") or "", given.get("data") or ""]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(path.read_text(encoding="utf-8"))
        assert not [one for one in loaded.addresses if re.match(r"(\w+:)?//", one)], path
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8")), path


@pytest.fixture(scope="module")
def datasets(site: Path, tab: browser.Page) -> browser.Page:
    tab.open(site / "datasets.html")
    return tab


VISIBLE = "[...document.querySelector('table').tBodies[0].rows].filter(row => !row.hidden)"
COLUMN = VISIBLE + ".map(row => row.cells[{}].textContent)"


def test_a_page_asks_nobody_for_anything_in_a_browser(datasets: browser.Page) -> None:
    assert [one for one in datasets.requests if not one.startswith(("file://", "data:", "blob:"))] == []


def test_the_table_of_datasets_can_be_searched(datasets: browser.Page) -> None:
    datasets.value(
        "search = document.querySelector('.table-search input'); search.value = 'wnut NER';"
        "search.dispatchEvent(new Event('input'))"
    )
    assert datasets.value(COLUMN.format(1)) == ["wnut17"]
    assert datasets.value("document.querySelector('.table-search output').textContent").startswith("1 of ")
    datasets.value("search.value = ''; search.dispatchEvent(new Event('input'))")
    assert datasets.value(f"{VISIBLE}.length") > 100


def test_the_table_of_datasets_can_be_sorted(datasets: browser.Page) -> None:
    click = "document.querySelector('table').tHead.rows[0].cells[5].querySelector('button').click()"
    found = []
    for _ in range(2):
        datasets.value(click)
        found.append([int(text.replace(",", "")) for text in datasets.value(COLUMN.format(5))])
    assert found[0] == sorted(found[0]) and found[1] == sorted(found[0], reverse=True)


@pytest.mark.parametrize(
    ("page", "model"),
    [("datasets", DatasetSpec), ("mixtures", Mixture), ("recipes", Recipe)],
)
def test_each_key_is_in_the_reference(page: str, model: type[DatasetSpec | Mixture | Recipe]) -> None:
    text = PAGES[f"reference/{page}.md"]()
    for name, field in model.model_fields.items():
        (row,) = re.findall(rf"^\| `{field.alias or name}` \|.*$", text.split("\n## ")[0], re.MULTILINE)
        assert page == "datasets" or not row.endswith("|  |"), "it has a meaning"


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


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_those_of_their_script(name: str) -> None:
    drawn = (DOCS / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.PICTURES[name](), "run `python -m pipelines.pages.pictures`"


def test_scores_of_the_comparison_are_those_of_the_results() -> None:
    results = (DOCS / "results.md").read_text(encoding="utf-8")
    for scores in [*overview.SCORES.values(), *overview.FIVE_SHOTS.values(), overview.ZERO_SHOT.values()]:
        assert all(f"{score:.3f}" in results for score in scores)


def test_a_symbol_is_shown_with_its_line() -> None:
    shown = with_lines("See `ubert/schema/errors.py::UserError`.")
    assert shown == f"See `ubert/schema/errors.py:{line('ubert/schema/errors.py', 'UserError')}` `UserError`."
    with pytest.raises(UserError, match=r"Predictor\.gone, which does not exist"):
        line("ubert/inference/predictor.py", "Predictor.gone")


def test_the_way_of_a_record_names_ten_files_by_line(site: Path) -> None:
    page = (site / "contributing.html").read_text(encoding="utf-8")
    assert len(re.findall(r"<td>\d+</td>\s*<td><code>[\w/]+\.py:\d+</code>", page)) == 10


def test_files_that_the_pages_name_exist() -> None:
    for page in [REPOSITORY / "README.md", *DOCS.rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        paths = re.findall(r"`((?:pipelines|ubert|tests|benchmarks|cluster)/[\w./-]+)`", text)
        assert [path for path in paths if not (REPOSITORY / path).exists()] == [], page
        assert set(re.findall(r"`(\w+\.py)`", text)) <= MODULES, page


def test_links_of_the_readme_lead_somewhere(site: Path) -> None:
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for path, _, anchor in re.findall(r"\]\(([\w./-]+)(#([\w-]+))?\)", page):
        assert (REPOSITORY / path).is_file(), path
        if anchor:
            built = site / path.removeprefix("docs/").replace(".md", ".html")
            assert f'id="{anchor}"' in built.read_text(encoding="utf-8"), anchor


def test_each_command_is_in_the_reference_with_an_example() -> None:
    text = PAGES["reference/commands.md"]()
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {"ingest", "pretrain", "predict", "serve"} < commands.keys()
    for name, command in commands.items():
        section = text.split(f"\n## `ubert {name}`\n")[1].split("\n## ")[0]
        assert f"$ ubert {name}" in section
        assert ("`--root DIR|URL`" in section) == any(one.name == "root" for one in command.params)


def test_a_notebook_is_shown_with_its_outputs() -> None:
    html = {"data": {"text/html": ["<b>\n", "x</b>"], "text/plain": ["x"]}}
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# A\n", "b"]},
        {"cell_type": "code", "source": ["f()"], "outputs": [html, {"name": "stdout", "text": ["1\n"]}]},
    ]
    assert notebook({"cells": cells}) == (
        '# A\nb\n\n```python\nf()\n```\n\n<div class="output"><b> x</b></div>\n\n```text\n1\n```\n'
    )


def test_a_cell_of_several_lines_stays_in_its_row() -> None:
    table = markdown_table(["corpus", "licence"], [["a", "CC BY 4.0\n(LICENSE)\n"], ["b|c", ""]])
    assert table.splitlines()[2:] == ["| a | CC BY 4.0 (LICENSE) |", "| b\\|c |  |"]
