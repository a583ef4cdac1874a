"""A pair of axes as svg, written by hand: small pictures of a page, drawn at no cost.

Text and axes have the page's color, so that a picture is readable in dark mode, and points say
their numbers on hover.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from headstart.reporting.text import readably

LETTER, LINE = 7.2, 16
"""The width and the height of a letter, about, in pixels."""
WIDTH, HEIGHT = 460, 300
"""Pixels of a picture."""
MAX_NAME = 22
"""Letters of a name that a picture shows."""
MAX_HOVERED = 500
"""Points up to which each one says its numbers."""
Range = tuple[float, float]
Ticks = dict[float, str]


def shorten(name: str) -> str:
    """A name that fits."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def spanned(values: Sequence[float], pad: float = 0.04) -> Range:
    """A range that holds all finite values, with some room around them.

    Args:
        values: The values.
        pad: The room at each end, as a fraction of their span.

    Example:
        >>> spanned([0.0, 10.0], 0.1), spanned([3.0, math.nan]), spanned([])
        ((-1.0, 11.0), (2.5, 3.5), (0.0, 1.0))
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = 0.5 if abs(low) < 10 else 0.05 * abs(low)
        return low - room, high + room
    room = pad * (high - low)
    return low - room, high + room


def ticks_of(span: Range, count: int = 6) -> Ticks:
    """Round numbers within a range, about so many: steps of 1, 2 or 5 times a power of ten.

    Args:
        span: The range.
        count: How many.

    Example:
        >>> list(ticks_of((0.0, 1.0)).values())
        ['0', '0.2', '0.4', '0.6', '0.8', '1']
    """
    rough = (span[1] - span[0]) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in (1, 2, 5, 10) if each * power >= 0.999 * rough)
    first, last = math.ceil(span[0] / step - 1e-9), math.floor(span[1] / step + 1e-9)
    return {place * step: readably(place * step, 6) for place in range(first, last + 1)}


@dataclass
class Axes:
    """Axes to draw on.

    Args:
        x: The range from left to right.
        y: The range from the bottom up; the first end may be the larger.
        x_label: What goes to the right.
        y_label: What goes up.
        x_ticks: Marks of the horizontal axis; None: round numbers.
        y_ticks: Marks of the vertical axis; None: round numbers.
        height: Pixels.
        slanted: Whether the words at the horizontal axis are slanted, to fit.

    Example:
        >>> axes = Axes((0, 1), (0, 2), "step", "loss")
        >>> axes.line([0, 1], [2, 1], "red")
        >>> axes.svg()[:4], "polyline" in axes.svg()
        ('<svg', True)
    """

    x: Range
    y: Range
    x_label: str
    y_label: str = ""
    x_ticks: Ticks | None = None
    y_ticks: Ticks | None = None
    height: int = HEIGHT
    slanted: bool = False
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.x_ticks = ticks_of(self.x) if self.x_ticks is None else self.x_ticks
        self.y_ticks = ticks_of(self.y) if self.y_ticks is None else self.y_ticks
        longest = max((len(label) for label in self.y_ticks.values()), default=0)
        words = max((len(label) for label in self.x_ticks.values()), default=0)
        self.left = 12 + LETTER * longest + (LINE + 4 if self.y_label else 0)
        # Slanted labels end at their mark; others reach beyond it, the last one to the right.
        half = 0.5 * LETTER * words
        self.right, self.top = WIDTH - max(14.0, 0.0 if self.slanted else half), 8.0
        below = half if self.slanted else 0
        self.bottom = self.height - 2.6 * LINE - below

    def across(self, value: float) -> float:
        """The pixel of a value, from the left."""
        low, high = self.x
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def up(self, value: float) -> float:
        """The pixel of a value, from the top."""
        low, high = self.y
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def _places(self, x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
        """Pixels of all finite points."""
        pairs = zip(x, y, strict=True)
        return [
            (self.across(a), self.up(b)) for a, b in pairs if math.isfinite(a) and math.isfinite(b)
        ]

    def line(
        self, x: Sequence[float], y: Sequence[float], color: str, *, dotted: bool = False
    ) -> None:
        """Points joined by a line."""
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in self._places(x, y))
        style = 'stroke-dasharray="2 3" stroke-width="1"' if dotted else 'stroke-width="1.8"'
        self.parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" {style}/>')

    def band(
        self, x: Sequence[float], low: Sequence[float], high: Sequence[float], color: str
    ) -> None:
        """What lies between two lines."""
        there, back = self._places(x, low), self._places(x, high)[::-1]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*there, *back])
        self.parts.append(f'<polygon points="{points}" fill="{color}" opacity="0.25"/>')

    def dots(
        self,
        x: Sequence[float],
        y: Sequence[float],
        color: str,
        *,
        radius: float = 3.0,
        opacity: float = 1.0,
    ) -> None:
        """Points; each says its numbers on hover where they are few."""
        said = len(x) <= MAX_HOVERED
        for a, b in zip(x, y, strict=True):
            if not (math.isfinite(a) and math.isfinite(b)):
                continue
            title = f"<title>{readably(a, 4)}: {readably(b, 4)}</title>" if said else ""
            self.parts.append(
                f'<circle cx="{self.across(a):.1f}" cy="{self.up(b):.1f}" r="{radius}" '
                f'fill="{color}" opacity="{opacity}">{title}</circle>'
            )

    def box(self, x: Range, y: Range, color: str, said: str = "", opacity: float = 0.7) -> None:
        """A rectangle between two values of each axis, which says something on hover."""
        left, right = sorted(self.across(value) for value in x)
        top, bottom = sorted(self.up(value) for value in y)
        title = f"<title>{html.escape(said)}</title>" if said else ""
        self.parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{bottom - top:.1f}" fill="{color}" opacity="{opacity}">{title}</rect>'
        )

    def svg(self) -> str:
        """The picture as an svg element."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" role="img" '
            'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13" '
            f'fill="currentColor">{self._frame()}{"".join(self.parts)}</svg>'
        )

    def _frame(self) -> str:
        """Grid, marks and labels."""
        left, right, top, bottom = self.left, self.right, self.top, self.bottom
        soft = 'stroke="currentColor" opacity="0.18"'
        parts = []
        for value, label in (self.x_ticks or {}).items():
            x = self.across(value)
            turned = f' transform="rotate(-30 {x:.1f} {bottom + LINE:.1f})"' if self.slanted else ""
            anchor = "end" if self.slanted else "middle"
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom:.1f}" {soft}/>'
                f'<text x="{x:.1f}" y="{bottom + LINE:.1f}" text-anchor="{anchor}"{turned}>'
                f"{html.escape(label)}</text>"
            )
        for value, label in (self.y_ticks or {}).items():
            y = self.up(value)
            parts.append(
                f'<line x1="{left:.1f}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" {soft}/>'
                f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">'
                f"{html.escape(label)}</text>"
            )
        across, middle = (left + right) / 2, (top + bottom) / 2
        parts.append(
            f'<text x="{across:.1f}" y="{self.height - 6}" text-anchor="middle">'
            f"{html.escape(self.x_label)}</text>"
        )
        if self.y_label:
            parts.append(
                f'<text x="{LINE - 2}" y="{middle:.1f}" text-anchor="middle" '
                f'transform="rotate(-90 {LINE - 2} {middle:.1f})">'
                f"{html.escape(self.y_label)}</text>"
            )
        return "".join(parts)
