"""Categories that each row lists itself, such as the options of a question."""

from __future__ import annotations

from typing import Any

from pipelines.mapping.fields import Field, as_label, text_field
from pipelines.mapping.paths import value
from pipelines.mapping.refused import RefusedError, short
from ubert.schema.specs.dataset import DatasetSpec

Candidates = list[tuple[str, str]]  # (key, name), in order; without keys in the row, the key is the name


def candidates_field(spec: DatasetSpec) -> Field[Candidates] | None:
    """Return a function that gets the candidates of a row, or None if the spec maps none."""
    if spec.map.candidates is None:
        return None
    path, keyed = spec.map.candidates, spec.map.candidate_keys
    if isinstance(path, dict):
        named = [(key, text_field(field)) for key, field in path.items()]
        return lambda scope: [(key, name(scope)) for key, name in named]
    names, keys = value(path), value(keyed) if keyed else None

    def candidates(scope: Any) -> Candidates:
        named = names(scope)
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise RefusedError("wrong type", f"{path!r} is {short(named)}, expected a list of names")
        ids = keys(scope) if keys else named
        if not isinstance(ids, list) or len(ids) != len(named):
            raise RefusedError("wrong type", f"{keyed!r} is {short(ids)}, expected a list as long as {path!r}")
        return [(as_label(key), name) for key, name in zip(ids, named, strict=True)]

    return candidates


def chosen(label: Any, candidates: Candidates, keyed: bool) -> int:
    """Return the index of the candidate that a label names. With keys, a label is a key. Without keys, it
    is a name, or a position from 0.

    Raises:
        RefusedError: no candidate fits, or several do.
    """
    if not keyed and isinstance(label, int) and not isinstance(label, bool):
        found = [label] if 0 <= label < len(candidates) else []
    else:
        found = [i for i, (key, _) in enumerate(candidates) if key == as_label(label)]
    if len(found) != 1:
        shown = short([key for key, _ in candidates])
        reason = "unknown category" if not found else "ambiguous label"
        raise RefusedError(
            reason, f"{short(label)} matches {len(found)} of the row's candidates {shown}, expected 1"
        )
    return found[0]
