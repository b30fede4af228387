"""Rules in a dataset's spec: filters of rows and annotations, cleaning of fields, and names of labels."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ubert.schema.yaml_file import Described

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def listed(given: Any) -> Any:
    """Wrap a single string or object in a list."""
    return [given] if isinstance(given, str | dict) else given


# One value, or any of several.
Values = Annotated[list[str], BeforeValidator(listed, json_schema_input_type=str | list[str])]


class FieldTest(Described):
    """A test of a field. If it has several keys, all must hold."""

    equal: Values | None = None
    """The field has this value, or one of these."""
    not_equal: Values | None = None
    """The field has none of these values."""
    exists: bool | None = None
    """true: the field is there and not null. false: it is missing or null."""
    empty: bool | None = None
    """true: the field is missing, null, blank or an empty list. false: it is none of these."""

    @model_validator(mode="after")
    def _asks_something(self) -> FieldTest:
        if all(asked is None for _, asked in self):
            raise ValueError("expected a value, several, or one of equal, not_equal, exists, empty")
        return self


def _as_test(given: Any) -> Any:
    return {"equal": given} if isinstance(given, str | list) else given


# A value that a field has, any of several, or a test.
Condition = Annotated[FieldTest, BeforeValidator(_as_test, json_schema_input_type=str | list[str] | FieldTest)]


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]


class Clean(Described):
    """How to clean a field before anything else reads it: parse, strip, replace, regex, nulls, in this order. In a
    list, each string is cleaned."""

    parse: Literal["json", "python"] | None = None
    """Read the field as a list or an object, written as JSON or as Python prints it."""
    strip: bool | str = False
    """Remove white space, or these characters, from both ends."""
    replace: dict[str, str] = Field(default_factory=dict)
    """Replace these strings with others."""
    regex: dict[Pattern, str] = Field(default_factory=dict)
    """Replace what these patterns match."""
    nulls: list[str] = Field(default_factory=list)
    """Read these strings as null."""

    @model_validator(mode="after")
    def _can_replace(self) -> Clean:
        for pattern, new in self.regex.items():
            try:
                re.sub(pattern, new, "")  # reads `new` even if nothing matches
            except (re.error, IndexError) as error:
                raise ValueError(f"regex: {new!r} can't replace what {pattern!r} matches: {error}") from None
        return self


class NameRules(Described):
    """How to make a name of a label: replace, split_camel_case, lower, in this order."""

    replace: dict[str, str] = Field(default_factory=dict)
    """Replace these strings with others, one after another."""
    split_camel_case: bool = False
    """Put a space before each capital letter that begins a word."""
    lower: bool = False
    """Use lower case."""

    def name(self, label: str) -> str:
        """Apply the rules to a label."""
        for old, new in self.replace.items():
            label = label.replace(old, new)
        if self.split_camel_case:
            label = _CAMEL.sub(" ", label)
        label = " ".join(label.split())
        return label.lower() if self.lower else label
