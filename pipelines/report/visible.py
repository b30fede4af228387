"""Make untrusted text safe to show on a page, in a plot or on a terminal."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

_KEPT = "\t\n"
_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # bidirectional controls
_SHOWN = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT},
    0x7F: "␡",
    **{code: f"[U+{code:04X}]" for code in (*range(0x80, 0xA0), *_REORDERING)},
}


def visible(text: str) -> str:
    """Replace control characters and bidirectional controls by visible symbols."""
    return text.translate(_SHOWN)


def shortened(text: str, most: int) -> str:
    """Cut a text to at most `most` characters, make it visible, and add the number of characters left out."""
    left = len(text) - most
    return visible(text) if left <= 0 else f"{visible(text[:most])}… (+{left:,})"


def fitted(text: str, cells: int) -> str:
    """Fit a text into one line of at most `cells` terminal cells. An ideograph takes two cells."""
    line = " ".join(visible(text).split())
    return line if cell_len(line) <= cells else set_cell_size(line, cells - 1).rstrip() + "…"


def count(number: int | None) -> str:
    """Format a number with separators of thousands; empty if there is none."""
    return "" if number is None else f"{number:,}"
