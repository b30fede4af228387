"""Generate the reference of a YAML file's keys from its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pipelines.pages.markdown import markdown_table

Schema = dict[str, Any]

_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def page(title: str, head: str, schema: Schema) -> str:
    """Return the page of one schema: its own keys, then those of each nested object."""
    root = schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    parts = [f"# {title} {{ #{root['title'].lower()} }}", head, *_section(root)]
    for name in _objects(root, schema["$defs"]):
        parts += [f"## {name}", *_section(schema["$defs"][name])]
    return "\n\n".join(parts) + "\n"


def _section(schema: Schema) -> Iterator[str]:
    if described := schema.get("description"):
        yield described
    # A dataset's keys are required only if its spec doesn't extend another one.
    others = [rule.get("else", {}) for rule in schema.get("allOf", [])]
    required = schema.get("required") or [key for rule in others for key in rule.get("required", [])]
    rows = []
    for key, value in schema["properties"].items():
        text = " ".join(value.get("description", "").split())
        rows.append([f"`{key}`", _kind(value), _default(value, key in required), text])
    yield markdown_table(["key", "value", "default", "meaning"], rows)


def _objects(root: Schema, definitions: Schema) -> list[str]:
    """Return the names of nested objects, in the order of the keys. Options of formats have their own page."""
    found: dict[str, None] = {}
    left = [root["properties"]]
    while left:
        for name in _references(left.pop(0)):
            held = definitions[name]
            if name not in found and "properties" in held and held is not root and "." not in name:
                found[name] = None
                left.append(held["properties"])
    return list(found)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _kind(value: Schema) -> str:
    """Describe the type of a value. Null is not mentioned, because it is the default."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        kinds = dict.fromkeys(_kind(one) for one in value["anyOf"] if one.get("type") != "null")
        return " or ".join(kinds)
    if "enum" in value or "const" in value:
        return ", ".join(f"`{one}`" for one in value.get("enum", [value.get("const")]))
    kind = value.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(value.get('items', {}))}"
    if kind == "object":
        inside = value.get("additionalProperties")
        return f"mapping to {_kind(inside)}" if isinstance(inside, dict) else "mapping"
    bounds = [f"{sign} {value[name]:g}" for name, sign in _BOUNDS.items() if name in value]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _default(value: Schema, required: bool) -> str:
    if required:
        return "required"
    default = value.get("default")
    return "" if default in (None, "", [], {}) or isinstance(default, dict) else f"`{json.dumps(default)}`"
