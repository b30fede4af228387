"""Plain names for source labels, as the model reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ubert.schema.specs.mapping import quoted

_KNOWN = {
    "per": "person", "pers": "person", "loc": "location", "org": "organization", "misc": "miscellaneous name",
    "pos": "positive", "neg": "negative", "neu": "neutral", "num": "number", "prod": "product", "fac": "facility",
    "gpe": "country, city or state", "veh": "vehicle", "wea": "weapon", "oos": "out of scope",
}  # fmt: skip
_MARK = re.compile(r"^(?:__label__|[BIESMUL]-(?=\S))")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)")
_LEVEL = re.compile(r"(?<!\d)\s*[:./|>]\s*(?=\S)|\s*[:./|>]\s*(?=[^\s\d])")  # not between digits: 4.5 stars


def plain_name(label: str) -> str:
    """Convert a label to plain words: remove prefixes and numbers, and split underscores and camel case."""
    parts = [_words(part) for part in _LEVEL.split(_MARK.sub("", label)) if part]
    return ": ".join(part for part in parts if part) or label


def is_key(name: str) -> bool:
    """Tell whether a name can be a key in a path without quotes, where some characters have a meaning."""
    return bool(name) and not set(name) & set('.[]{}?/"')


def step(key: str) -> str | None:
    """Return a step of a path that leads to a key: in double quotes if it needs them, None if it has brackets, for
    which a draft has no use."""
    if not key or set(key) & set("[]{}"):
        return None
    return key if is_key(key) else quoted(key)


def is_code(name: str) -> bool:
    """Tell whether a name is only a code, such as `1` or `MACH`: it has only capitals, or no three letters in a
    row and is ASCII."""
    return name.isupper() or (not re.search(r"[^\W\d_]{3}", name) and name.isascii())


def plain_names(labels: Iterable[str]) -> dict[str, str]:
    """Return a distinct name for each label, because categories with the same name would be one category. If the
    plain name of a label is another label, or an earlier name, the label itself is the name."""
    listed = dict.fromkeys(labels)
    shared, taken, names = _shared([*listed]), {*listed}, dict[str, str]()
    for label in listed:
        name = plain_name(label.removeprefix(shared) or label)
        names[label] = name if name not in taken else label
        taken.add(name)
    return names


def beginning(names: Iterable[str]) -> str:
    """Return the longest common prefix of the names."""
    first, last = min(names := [*names]), max(names)
    same = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:same]


def _shared(labels: list[str]) -> str:
    """Return the common prefix of the labels, up to a separator: `atis_` for atis_flight and atis_meal. Of two
    labels, only keys of one object, such as cats.good and cats.bad, certainly have one."""
    separator = "[_:/.]" if len(labels) > 2 else "[.]"
    beginning = re.match(rf"[^\W\d]+?{separator}", labels[0]) if len(labels) > 1 else None
    return beginning[0] if beginning and all(label.startswith(beginning[0]) for label in labels) else ""


def _words(part: str) -> str:
    spaced = _CAMEL.sub(" ", re.sub(r"[_\s]+|(?<=[A-Za-z])-(?=[A-Za-z])", " ", part)).strip()
    words = [word for word in spaced.split(" ") if word]
    if len(words) > 1:  # a number beside words is a counter, not part of the name
        words = [word for word in words if not word.isdigit()] or words
    shouted = all(not word.isalpha() or word.isupper() for word in words) and len(words) > 1
    return " ".join(_word(word, shouted) for word in words)


def _word(word: str, shouted: bool) -> str:
    if known := _KNOWN.get(word.lower()):
        return known
    return word if word.isupper() and len(word) <= 4 and not shouted else word.lower()
