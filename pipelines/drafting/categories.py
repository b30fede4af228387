"""Counts the labels of rows. It finds them with the mapper's own functions, where a spec's `map` points."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from pipelines.drafting.names import plain_names
from pipelines.mapping.annotations.gather import gatherer
from pipelines.mapping.annotations.gathered import Gathered
from pipelines.mapping.annotations.tags import tagged_spans
from pipelines.mapping.body import body_field
from pipelines.mapping.clean import cleaner
from pipelines.mapping.conditions import condition
from pipelines.mapping.fields import as_label, flag_field, words_field
from pipelines.mapping.paths import Scope, value
from pipelines.mapping.refused import RefusedError
from ubert.schema.checks import is_utf8
from ubert.schema.record import Task
from ubert.schema.specs.mapping import Mapping, unquoted

NO_LABEL = ("-", "")  # placeholders for a missing label
LABELLED: tuple[Task, ...] = ("classification", "multilabel", "pair")


@dataclass
class Labels:
    """How often each label occurs, by kind. Roles are counted by the label of their event. `absent` counts the
    labels that are null, which specs write like the text "null"."""

    label: Counter[str] = field(default_factory=Counter)
    absent: int = 0
    entity: Counter[str] = field(default_factory=Counter)
    relation: Counter[str] = field(default_factory=Counter)
    event: Counter[str] = field(default_factory=Counter)
    role: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    values: list[float] = field(default_factory=list)

    def categories(self) -> dict[str, Any]:
        """Return `categories` of a spec, which map source labels to plain names."""
        found: dict[str, Any] = {}
        given = self.label - Counter(null=self.absent)
        if labels := [label for label in _sorted(given) if label not in NO_LABEL]:
            found["label"] = plain_names(labels)
        if entity := [label for label in _sorted(self.entity) if label not in self.event]:
            found["entity"] = plain_names(entity)
        if self.relation:
            named = plain_names(_sorted(self.relation))
            found["relation"] = [{"label": label, "name": name} for label, name in named.items()]
        if self.event:
            found["event"] = {
                label: {
                    "name": name,
                    **({"roles": plain_names(roles)} if (roles := _sorted(self.role[label])) else {}),
                }
                for label, name in plain_names(_sorted(self.event)).items()
            }
        if self.values:
            found["value"] = scale(self.values)
        return found


def _sorted(counts: Counter[str]) -> list[str]:
    """Sort numbers by value, and names by frequency. Labels with a lone surrogate, which YAML can't contain, are
    left out, so that their rows are rejected."""
    labels = [label for label in counts if is_utf8(label)]
    if all(re.fullmatch(r"-?\d{1,18}", label) for label in labels):
        return sorted(labels, key=int)
    return sorted(labels, key=lambda label: (-counts[label], label))


def scale(values: list[float]) -> list[float]:
    """Return buckets for the values of a regression: integers if the range is at most 10, five even steps from
    0 to 1 if all values are in this range, and otherwise five even steps over the range."""
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        return [0.0, 0.25, 0.5, 0.75, 1.0]
    first, last = float(int(low // 1)), float(int(-(-high // 1)))
    if 1 <= last - first <= 10:
        return [first + step for step in range(int(last - first) + 1)]
    return [round(low + (high - low) * step / 4, 6) for step in range(5)] if high > low else [low]


def counter(task: Task, given: Mapping, into: Labels) -> Callable[[dict[str, Any]], None]:
    """Return a function that counts the labels of a row. It ignores a row that can't be mapped, or that `when`
    leaves out."""
    count, clean, wanted = _counter(task, given, into), cleaner(given.clean), condition(given.when)

    def add(content: dict[str, Any]) -> None:
        try:
            cleaned = clean(content)
            scope = Scope(cleaned, cleaned, {})
            if wanted is None or wanted(scope):
                count(scope)
        except (RefusedError, AttributeError, TypeError):
            return

    return add


def counted(task: Task, given: Mapping, contents: Iterable[dict[str, Any]]) -> Labels:
    found = Labels()
    add = counter(task, given, found)
    for content in contents:
        add(content)
    return found


def _counter(task: Task, given: Mapping, into: Labels) -> Callable[[Scope], None]:
    if given.candidates is not None and task != "ner":
        return lambda scope: None
    if task in LABELLED and given.label is not None:
        return _labels(given, into)
    if given.label_flags is not None:
        return _flags(given.label_flags, into)
    if task == "regression":
        get = value(given.value or ".")
        return lambda scope: into.values.append(float(get(scope))) if _is_number(get(scope)) else None
    if given.tags is not None:
        return _tags(given, into)
    if given.chunks is not None:
        entities = value(f"{given.chunks}[].entity?")
        return lambda scope: into.entity.update(each for each in entities(scope) if each is not None)
    if task in ("ner", "relation", "event") and given.candidates is None:
        return _annotations(task, given, into)
    return lambda scope: None


def _is_number(found: Any) -> bool:
    try:
        return isfinite(float(found)) and not isinstance(found, bool)
    except (TypeError, ValueError, OverflowError):
        return False


def _labels(given: Mapping, into: Labels) -> Callable[[Scope], None]:
    get, sign, ignored = value(given.label or "."), given.label_separator, {*given.ignore_labels}

    def count(scope: Scope) -> None:
        found = get(scope)
        if sign is not None and isinstance(found, str):
            found = found.split(sign) if found else []
        several = found if isinstance(found, list) else [found]
        listed = [each for each in several if as_label(each) not in ignored]
        into.label.update(map(as_label, listed))
        into.absent += listed.count(None)

    return count


def _flags(paths: list[str], into: Labels) -> Callable[[Scope], None]:
    flags = [(unquoted(path), flag_field(path, required=True)) for path in paths]

    def count(scope: Scope) -> None:
        into.label.update({label: flag(scope) for label, flag in flags})  # 0 of a label that this row lacks

    return count


def _tags(given: Mapping, into: Labels) -> Callable[[Scope], None]:
    columns, scheme, ignored = (
        [words_field(path) for path in given.tags or []],
        given.scheme,
        {*given.ignore_labels},
    )

    def count(scope: Scope) -> None:
        for column in columns:
            into.entity.update(kind for *_, kind in tagged_spans(column(scope), scheme) if kind not in ignored)

    return count


def _annotations(task: Task, given: Mapping, into: Labels) -> Callable[[Scope], None]:
    body, gather = body_field(given), gatherer(task, given)

    def count(scope: Scope) -> None:
        found = Gathered()
        gather(scope, body(scope), found)
        into.entity.update(mention.label for mention in found.mentions if mention.label is not None)
        into.relation.update(link.label for link in found.relations)
        for event in found.events:
            into.event[event.label] += 1
            roles = [role for role, _ in event.arguments]
            # brat numbers repeated roles of one event: Theme2
            into.role[event.label].update(role.rstrip("0123456789") or role for role in roles)

    return count
