"""Text of unknown origin, made fit to be shown: on a page, in a picture, on a terminal."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

_KEPT = "\t\n"
_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))  # would show other characters in another order
_SHOWN = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT},
    0x7F: "␡",
    **{code: f"[U+{code:04X}]" for code in (*range(0x80, 0xA0), *_REORDERING)},
}


def visible(text: str) -> str:
    """Characters that steer a terminal or turn the order of others become signs that name them."""
    return text.translate(_SHOWN)


def shortened(text: str, most: int) -> str:
    """At most so many characters, visible; how many are left out is said."""
    left = len(text) - most
    return visible(text) if left <= 0 else f"{visible(text[:most])}… (+{left:,})"


def fitted(text: str, cells: int) -> str:
    """One line of at most so many cells of a terminal, of which an ideograph takes two."""
    line = " ".join(visible(text).split())
    return line if cell_len(line) <= cells else set_cell_size(line, cells - 1).rstrip() + "…"
