"""Hooks of MkDocs: add the generated pages and the notebook, and set titles of code blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pipelines.pages import commands, keys
from pipelines.pages.symbols import REPOSITORY, with_lines
from pipelines.specs import json_schemas

_DATASET = """A dataset's spec is `corpus_specs/datasets/<name>.yaml`. [Adding a dataset](../adding-a-dataset.md)
has examples, and what each key of `map` means; [formats](../formats.md) has the options of each format."""
_MIXTURE = """A mixture is `corpus_specs/mixtures/<name>.yaml`. [Mix corpora](../guides/mix.md) has examples."""
_RECIPE = """A recipe is `corpus_specs/recipes/<name>.yaml`. [Pretrain](../guides/pretrain.md) has examples."""
PAGES: dict[str, Callable[[], str]] = {
    "reference/datasets.md": lambda: keys.page("Keys of a dataset's spec", _DATASET, json_schemas()["dataset"]),
    "reference/mixtures.md": lambda: keys.page("Keys of a mixture", _MIXTURE, json_schemas()["mixture"]),
    "reference/recipes.md": lambda: keys.page("Keys of a recipe", _RECIPE, json_schemas()["recipe"]),
    "reference/commands.md": commands.page,
    "guides/cluster.md": lambda: (REPOSITORY / "cluster" / "README.md").read_text(encoding="utf-8"),
}
_NAMED_BLOCK = re.compile(r"^```(\w+) ([\w./-]+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the notebooks."""
    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
        page_path = file.src_uri.replace(".ipynb", ".md")
        files.append(File.generated(config, page_path, content=notebook(json.loads(file.content_string))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the name after a block's language its title ("```yaml shop.yaml"), and add the lines of symbols."""
    return _NAMED_BLOCK.sub(r'```\1 title="\2"', with_lines(markdown))


def notebook(content: dict[str, Any]) -> str:
    """Convert a notebook to Markdown, with its saved outputs."""
    return "\n\n".join(part for cell in content["cells"] for part in _cell(cell)) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            html = "".join(data["text/html"]).replace("\n", " ")  # a blank line would end the block in Markdown
            yield f'<div class="output">{html}</div>'
        elif text := "".join(data.get("text/plain", output.get("text", []))):
            yield f"```text\n{text.rstrip()}\n```"
