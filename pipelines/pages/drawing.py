"""Draw boxes, arrows and text as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

INK, PAPER = "#222", "#fff"
BLUE, RED, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#ddd"
CHARACTER = 7.8  # width of a character in a monospaced font of 13 pixels

Parts = Iterator[str]


def picture(width: int, height: int, parts: Parts) -> str:
    """Return a standalone SVG. Its background is white, so that it is legible on dark pages, too."""
    style = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" style="{style}">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="{PAPER}"/>', *parts, "</svg>\n"])


def svg(width: int, height: int) -> Callable[[Callable[[], Parts]], Callable[[], str]]:
    """Return a decorator that makes a function of parts return their picture."""
    return lambda parts: lambda: picture(width, height, parts())


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, words: str, colour: str = PAPER, height: float = 28) -> Parts:
    """Draw a box with centred text, which is white on a dark colour."""
    ink = INK if colour in (PAPER, GREY) else PAPER
    size = f'width="{width:g}" height="{height:g}"'
    yield f'<rect x="{x:g}" y="{y:g}" {size} rx="3" fill="{colour}" stroke="{INK}"/>'
    yield text(x + width / 2, y + height / 2 + 4.5, words, ink)


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Draw a line with a dot at its end."""
    line = f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{INK}"/>'
    return f'{line}<circle cx="{to_x:g}" cy="{to_y:g}" r="3" fill="{INK}"/>'


def row(x: float, y: float, tokens: Sequence[str], colours: dict[int, str] | None = None) -> Parts:
    """Draw tokens side by side."""
    for i, token in enumerate(tokens):
        width = CHARACTER * len(token) + 10
        yield from box(x, y, width, token, (colours or {}).get(i, PAPER))
        x += width + 3
