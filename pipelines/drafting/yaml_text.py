"""Formats values as YAML in the style of the project's specs: flow style, with comments at the ends of lines."""

from __future__ import annotations

from functools import partial
from textwrap import wrap
from typing import Any

import yaml

from pipelines.report.visible import visible

WIDTH = 115
_wrap = partial(wrap, width=WIDTH, break_long_words=False, break_on_hyphens=False)


def scalar(value: Any) -> str:
    """Format a value on one line in flow style. A string that needs quotes gets double ones, or single ones if it
    has double ones itself."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(scalar, value)) + "]"
    plain = str(yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=1 << 20)).strip()[1:-1]
    single = plain.startswith("'") and '"' in plain and "\n" not in plain
    if isinstance(value, str) and not single and (plain[:1] in "'\"?" or "\n" in plain or plain[:1] == "["):
        quoted = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=1 << 20)
        return str(quoted).removesuffix("\n")
    return plain


def line(text: str, comment: str = "") -> list[str]:
    """Format a line with its comment at the end, or above it if the line would be too long."""
    if not comment:
        return [text]
    comment = _one_line(comment)
    if len(text) + len(comment) + 4 <= WIDTH:
        return [f"{text}  # {comment}"]
    indent = text[: len(text) - len(text.lstrip(" "))]
    if text.lstrip().startswith("- "):
        indent += "  "
    return [*comments(comment, indent), text]


def comments(text: str, indent: str = "") -> list[str]:
    """Wrap a comment over as many lines as it needs."""
    start = f"{indent}# "
    return _wrap(_one_line(text), initial_indent=start, subsequent_indent=start)


def _one_line(comment: str) -> str:
    """Return a comment on one line, without control characters, which YAML allows only in quotes."""
    return visible(" ".join(comment.split()))
