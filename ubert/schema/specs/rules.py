"""Rules in a dataset's spec: filters of rows and annotations, cleaning of fields, and names of labels."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ubert.schema.yaml_file import Strict

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def listed(given: Any) -> Any:
    """Wrap a single string or object in a list."""
    return [given] if isinstance(given, str | dict) else given


# One value, or any of several.
Values = Annotated[list[str], BeforeValidator(listed, json_schema_input_type=str | list[str])]


class FieldTest(Strict):
    """What is asked of a field: it has one of the values of `equal`, none of `not_equal`; it is there (`exists`),
    or is missing or null; it is missing, null, blank or without items (`empty`), or is none of these."""

    equal: Values | None = None
    not_equal: Values | None = None
    exists: bool | None = None
    empty: bool | None = None

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


class Clean(Strict):
    """How a field is cleaned before anything else is read of the row. `parse`: the field is a list or object that
    is written as JSON, or as Python prints it. Then, of the string, or of each string of the list: `strip` takes
    white space (or these characters) off both ends; `replace` puts other words in the place of words, `regex` in
    the place of what a pattern matches; and what is then one of `nulls` is nothing."""

    parse: Literal["json", "python"] | None = None
    strip: bool | str = False
    replace: dict[str, str] = Field(default_factory=dict)
    regex: dict[Pattern, str] = Field(default_factory=dict)
    nulls: list[str] = Field(default_factory=list)


class NameRules(Strict):
    """How a name is made of a label: `replace`, in order; `split_camel_case`: a space before each capital that
    begins a word; `lower`: no capitals."""

    replace: dict[str, str] = Field(default_factory=dict)
    split_camel_case: bool = False
    lower: bool = False

    def name(self, label: str) -> str:
        """Apply the rules to a label."""
        for old, new in self.replace.items():
            label = label.replace(old, new)
        if self.split_camel_case:
            label = _CAMEL.sub(" ", label)
        label = " ".join(label.split())
        return label.lower() if self.lower else label
