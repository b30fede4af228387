"""Read and validate YAML files strictly, and report every error with the file and the key path."""

from __future__ import annotations

import json
import reprlib
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from yaml.composer import Composer

from ubert.schema.errors import UserError


class Strict(BaseModel):
    """Base of all models read from YAML or JSON: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Described(Strict):
    """A part of a spec whose keys have descriptions: the docstrings below them, which editors show."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def _inside(path: str) -> str:
    if path.startswith(("/", "~")) or ".." in path.split("/") or "\\" in path or "\0" in path:
        raise ValueError("expected a path inside the dataset's folder")
    return path


InsidePath = Annotated[str, AfterValidator(_inside)]  # keeps a spec inside the folder of its raw files

Model = TypeVar("Model", bound=BaseModel)


class _Loader(Composer, yaml.CSafeLoader):
    """PyYAML's safe loader with libyaml's parser, which is six times as fast. It rejects more than PyYAML does.

    Duplicate keys are errors, where PyYAML keeps the last. Aliases are errors, because a few lines of them can
    expand beyond any memory. Values that can't be converted to the type they look like are errors, too.
    """

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            assert isinstance(event, yaml.AliasEvent)
            problem = f"alias *{event.anchor}: aliases are not supported; repeat the value"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > 64:
                raise ValueError("too many digits")
        except (ValueError, LookupError, AttributeError, ArithmeticError) as error:  # PyYAML raises any of these
            kind = node.tag.rpartition(":")[2]
            problem = f"{shortened(node.value)} cannot be read as {kind} ({error}); put text in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} given twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Parse a YAML file (safe tags only).

    Raises:
        UserError: the file is missing, can't be read, or is not UTF-8 or not YAML; the message has the line.
    """
    try:
        return _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; give a YAML file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None


def validate(model: type[Model], content: Any, path: Path | str) -> Model:
    """Check `content` against `model`.

    Raises:
        UserError: one line for each wrong key, with `path` and the key's path.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise UserError("\n".join(explain(error, path))) from None


def explain(error: ValidationError, path: Path | str, prefix: tuple[str, ...] = ()) -> list[str]:
    """Return one sentence per error: file, key path, what is wrong, and the value."""
    lines = []
    for item in error.errors(include_url=False):
        place = [str(part) for part in item["loc"]]
        if place[-1:] == ["[key]"] and not isinstance(item["input"], str):
            place[-2] = shortened(item["input"])  # pydantic shows a key that is not a string as an index
        key = ".".join([*prefix, *place])
        if not key and isinstance(item["input"], dict):  # keys contradict each other, and the message names them
            lines.append(f"{path}: {item['msg'].removeprefix('Value error, ')}")
            continue
        key = key or "(whole file)"
        if item["type"] == "extra_forbidden":
            lines.append(f"{path}: {key}: unknown key; remove it or correct its name")
            continue
        got = "" if item["type"] == "missing" else f", got {shortened(item['input'])}"
        if item["type"] == "string_type" and isinstance(item["input"], bool | int | float | date | None):
            got += f"; {_cure(item['input'])}"
        lines.append(f"{path}: {key}: {item['msg'].removeprefix('Value error, ')}{got}")
    return lines


def load(model: type[Model], path: Path) -> Model:
    """Read and validate a YAML file.

    Raises:
        UserError: the file is invalid; the message lists every error.
    """
    return validate(model, read_yaml(path), path)


def _cure(value: bool | float | date | None) -> str:
    """Explain how to write a value that YAML does not read as a string."""
    if isinstance(value, bool):
        return "quote it: YAML reads yes, no, on and off without quotes as true or false"
    if value is None:
        return "quote it: YAML reads null, ~ and nothing at all without quotes as no value"
    return f'quote it: "{value}"'


def shortened(value: Any) -> str:
    """Format a value for an error message, truncated: strings in quotes, other values as JSON."""
    text = _written(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _written(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)
    return text.encode("utf-8", "backslashreplace").decode()  # escape lone surrogates
