"""Write docs/formats.md from the readers: `python -m pipelines.pages.format_page`.

The section of a format has its module's docstring, its example, the rows of the example, and its options.
"""

from __future__ import annotations

import json
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic.fields import FieldInfo

from pipelines.pages.markdown import markdown_table
from pipelines.sources import Example, RawRow, Slice, formats, module_name, reader

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
BINARY = {"parquet", "arrow"}

_HEAD = """# Formats

A spec names the `format` of its files and the `options` of the format. A single file can have its own `options`
in its entry of `files`. A reader converts the files to rows. `map` then tells what each field of a row contains;
see [adding a dataset](adding-a-dataset.md). `make schemas` writes this page from the readers.

"""


def page() -> str:
    """Return the page as Markdown."""
    modules = [import_module(module_name(name)) for name in formats()]
    names = [module.__name__.rpartition(".")[2] for module in modules]
    titles = [(f"[{name}](#{name})", _title(module)) for name, module in zip(names, modules, strict=True)]
    parts = [_HEAD + markdown_table(("format", "what it reads"), titles)]
    parts += [f"{_section(name, module)}\n" for name, module in zip(names, modules, strict=True)]
    return "\n".join(parts)


def _title(module: ModuleType) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    first = (module.__doc__ or "").split("\n\n")[0]
    return " ".join(first.split()).rstrip(".:")


def _section(name: str, module: ModuleType) -> str:
    example: Example = module.EXAMPLE
    (first, content), *others = example.files.items()
    spec = f"format: {name}\n"
    if example.options:
        options = {"options": dict(example.options)}
        spec += yaml.safe_dump(options, sort_keys=False, default_flow_style=None, width=100)
    parts = [f"## {name}", (module.__doc__ or "").strip()]
    if name in BINARY:
        parts += [f"A file `{first}` with these rows:", _block("json", content)]
    else:
        for file, text in [(first, content), *others]:
            parts += [f"`{file}`:", _block("text", text)]
    made = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows(name))
    parts += [_block("yaml", spec), "becomes", _block("json", made)]
    return "\n\n".join([*parts, _options(module)])


def _block(language: str, content: str) -> str:
    return f"```{language}\n{content.rstrip()}\n```"


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows that the reader of a format yields for its example."""
    form = reader(name)
    example = form.EXAMPLE
    with TemporaryDirectory() as folder:
        for file, content in example.files.items():
            data = _binary(name, content) if name in BINARY else content.encode()
            Path(folder, file).write_bytes(data)
        first = next(iter(example.files))
        piece = Slice(folder, first, 0, Path(folder, first).stat().st_size, 1, "utf-8", "0")
        found = list(form.read(piece, form.Options.model_validate(dict(example.options))))
    return [row.content for row in found if isinstance(row, RawRow)]


def _binary(name: str, lines: str) -> bytes:
    table, file = pa.Table.from_pylist([json.loads(line) for line in lines.splitlines()]), BytesIO()
    if name == "parquet":
        pq.write_table(table, file)
    else:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    return file.getvalue()


def _options(module: ModuleType) -> str:
    fields: dict[str, FieldInfo] = module.Options.model_fields
    rows = []
    for name, field in fields.items():
        default = "needed" if field.is_required() else _default(field)
        rows.append((f"`{field.alias or name}`", default, " ".join((field.description or "").split())))
    return markdown_table(("option", "default", "meaning"), rows).rstrip() if rows else "It has no options."


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
