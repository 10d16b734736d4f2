"""Elements of SVG, everything in them escaped."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from attrs import frozen
from markupsafe import Markup, escape

#: What an attribute may be given; None leaves it out.
Value = str | float | int | None


@frozen(kw_only=True)
class Figure:
    """One drawing, with what stands above and below it."""

    #: What it shows, in one short line.
    title: str
    #: The drawing, with title and description for screen readers.
    svg: Markup
    #: Colour class and text of what is drawn, for the legend.
    legend: tuple[tuple[str, str], ...] = ()
    #: What happened at the numbers in the drawing, in their order.
    moments: tuple[str, ...] = ()
    #: How many more there are, e.g. ``and 7 more``.
    more: str = ""
    #: What it does not show, and why; one sentence each.
    notes: tuple[str, ...] = ()
    #: The same as a table: names of the columns, and rows.
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    #: The same of others, small: what it is of, and the drawing.
    small: tuple[tuple[str, Markup], ...] = ()


def element(name: str, *children: object, **attributes: Value) -> Markup:
    """An element; a trailing underscore of an attribute's name falls away, others become hyphens."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _number_text(value))
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup("<{}{}/>").format(name, given)
    return Markup("<{}{}>{}</{}>").format(name, given, Markup("").join(map(escape, children)), name)


def drawing(
    title: str, description: str, height_px: float, children: Iterable[object], *, class_: str = ""
) -> Markup:
    """A drawing as wide as its place, with its name and its description first."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        role="img",
        class_=f"wd-drawing {class_}".rstrip(),
        height=height_px,
        width="100%",
    )


def percent(share: float) -> str:
    """A position or a width from 0 to 1, as a percentage."""
    return f"{_number_text(100 * share)}%"


def path(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """Points as the data of a path: lines from each to the next."""
    text = "L".join(f"{_number_text(x)} {_number_text(y)}" for x, y in points)
    return f"M{text}{'Z' if closed else ''}" if text else ""


def _number_text(value: Value) -> str:
    """A number with at most two digits behind the point; SVG knows no infinity."""
    if isinstance(value, float):
        return f"{round(value, 2):g}" if isfinite(value) and abs(value) < 1e5 else "0"
    return str(value)
