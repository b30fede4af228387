"""Descriptions of what categories mean, in place of their names, for `experiments.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import yaml
from msgspec.structs import replace

from pipelines.models import evaluate, thresholds
from ubert.schema.record import Record

NO_DESCRIPTIONS: Mapping[str, str] = {}
ordinary = evaluate.read_records


def descriptions() -> dict[str, str]:
    described: dict[str, str] = yaml.safe_load(Path(__file__).with_name("descriptions.yaml").read_text("utf-8"))
    return described


@contextmanager
def asked_with(described: Mapping[str, str]) -> Iterator[None]:
    """Ask for descriptions in place of names in all that is evaluated within the block."""

    def read(*arguments: object) -> Iterator[Record]:
        for record in ordinary(*arguments):  # type: ignore[arg-type]
            named = [replace(one, name=described.get(one.name, one.name)) for one in record.categories]
            yield replace(record, categories=tuple(named))

    with patch.object(evaluate, "read_records", read), patch.object(thresholds, "read_records", read):
        yield
