"""Read and validate YAML files strictly, and report every error with the file and the key path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from yaml.composer import Composer

from ubert.schema.errors import UserError
from ubert.schema.wrong_keys import explain, shortened


class Strict(BaseModel):
    """Base of all models read from YAML or JSON: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Described(Strict):
    """A part of a spec whose keys have descriptions: the docstrings below them, which editors show."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _is_no_truth_value(cls, given: Any, check: ValidatorFunctionWrapHandler) -> Any:
        """Refuse true and false, which YAML makes of yes, no, on and off, for 1 and 0."""
        found = check(given)
        pairs = [(given, found)]
        if isinstance(given, dict) and isinstance(found, dict):
            pairs = [(value, found.get(key)) for key, value in given.items()]
        elif isinstance(given, list) and isinstance(found, list):
            pairs = list(zip(given, found, strict=False))
        for value, read in pairs:
            if isinstance(value, bool) and isinstance(read, int | float) and not isinstance(read, bool):
                raise ValueError("expected a number")
        return found


def _inside(path: str) -> str:
    if path.startswith(("/", "~")) or ".." in path.split("/") or "\\" in path or "\0" in path:
        raise ValueError("expected a path inside the dataset's folder")
    return path


InsidePath = Annotated[str, AfterValidator(_inside)]  # keeps a spec inside the folder of its raw files

Model = TypeVar("Model", bound=BaseModel)
# Numbers that hardly anyone means in YAML 1.1: octal, as 010 for 8, and to the base of 60, as 12:30 for 750.
_ODD_NUMBER = re.compile(r"[-+]?0[0-7_]+|.*:.*")


class _Loader(Composer, yaml.CSafeLoader):
    """PyYAML's safe loader with libyaml's parser, which is six times as fast. It rejects more than PyYAML does.

    Duplicate keys are errors, where PyYAML keeps the last. Aliases are errors, because a few lines of them can
    expand beyond any memory. Values that can't be converted to the type they look like are errors, too, and so are
    octal and sexagesimal numbers.
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
            if isinstance(value, int | float) and _ODD_NUMBER.fullmatch(node.value):
                raise ValueError(f"in YAML it is the number {value}")
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
        raise UserError(f"{path}: not valid YAML: {_syntax_error(error)}") from None


def _syntax_error(error: yaml.YAMLError | RecursionError) -> str:
    """Return where YAML can't be read, and why."""
    if not isinstance(error, yaml.MarkedYAMLError) or not (mark := error.problem_mark or error.context_mark):
        # PyYAML names a text that it did not read from a file itself "<unicode string>".
        return " ".join(str(error).split()).replace('"<unicode string>"', "the file")
    begun = error.context_mark
    since = f" from line {begun.line + 1} on" if begun and begun.line != mark.line else ""
    context = f"{error.context}{since}, " if error.context else ""
    of_syntax = isinstance(error, yaml.parser.ParserError | yaml.scanner.ScannerError)
    cure = "; check the indentation, quotes and brackets there" if of_syntax else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {context}{error.problem}{cure}"


def validate(model: type[Model], content: Any, path: Path | str) -> Model:
    """Check `content` against `model`.

    Raises:
        UserError: one line for each wrong key, with `path` and the key's path.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise UserError("\n".join(explain(error, path, model=model))) from None


def load(model: type[Model], path: Path) -> Model:
    """Read and validate a YAML file.

    Raises:
        UserError: the file is invalid; the message lists every error.
    """
    return validate(model, read_yaml(path), path)
