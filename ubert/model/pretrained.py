"""The models that come with this package, one folder each."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "pretrained"


def names() -> list[str]:
    """List the models that come with this package."""
    return sorted(folder.name for folder in FOLDER.glob("*/"))
