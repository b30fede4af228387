"""Conditions on rows and annotations: a spec's `when`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.mapping.clean import cleaner
from pipelines.mapping.fields import Field, as_label
from pipelines.mapping.paths import Scope, value
from pipelines.mapping.refused import RefusedError
from pipelines.sources import RawRow
from ubert.schema.specs.mapping import Mapping
from ubert.schema.specs.rules import FieldTest


def condition(tests: dict[str, FieldTest]) -> Field[bool] | None:
    """Return a function that tells whether all these fields pass their tests, or None if there are no tests."""
    if not tests:
        return None
    parts = [_test(path, test) for path, test in tests.items()]
    return lambda scope: all(part(scope) for part in parts)


def row_filter(given: Mapping) -> Callable[[RawRow], bool]:
    """Return a function that tells whether a row passes the spec's `when`. If a test fails with an error,
    the row passes, and the mapper rejects it."""
    passes, clean = condition(given.when), cleaner(given.clean)
    if passes is None:
        return lambda row: True

    def wanted(row: RawRow) -> bool:
        try:
            content = clean(row.content)
            return passes(Scope(content, content, {}))
        except RefusedError:
            return True

    return wanted


def _test(path: str, test: FieldTest) -> Field[bool]:
    get, equal, other = value(path), test.equal, test.not_equal
    if test.exists is None and test.empty is None and other is None:
        wanted = equal or []
        return lambda scope: as_label(get(scope)) in wanted

    def passes(scope: Scope) -> bool:
        try:
            found = get(scope)
        except RefusedError as refused:
            if refused.reason != "missing field":
                raise
            found = None
        return (
            (test.exists is None or test.exists == (found is not None))
            and (test.empty is None or test.empty == _is_empty(found))
            and (equal is None or (found is not None and as_label(found) in equal))
            and (other is None or found is None or as_label(found) not in other)
        )

    return passes


def _is_empty(found: Any) -> bool:
    return found is None or found in ([], {}) or (isinstance(found, str) and not found.strip())
