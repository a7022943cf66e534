"""Pages of HTML that need nothing but themselves: text, tables, and drawings in SVG."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from .plots import COLOURS, UNKNOWN_COLOUR
from .report import readable_number

# A drawing is as wide as a small telephone. On wider screens it grows, and its letters with it.
WIDTH, HEIGHT = 340, 260
LEFT, RIGHT, TOP, BOTTOM = 54, 10, 8, 36
# Characters that may not stand in a page, not even as a reference.
FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")

STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1c1c1e;--soft:#6b6b70;--line:#d9d9de;--panel:#f6f6f8}
@media(prefers-color-scheme:dark){:root{--back:#161618;--text:#ececf0;--soft:#a0a0a8;--line:#3a3a40;--panel:#202024}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:72rem;background:var(--back);color:var(--text);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.1rem;margin:0 0 .5rem}p{margin:.3rem 0 .7rem}
.soft{color:var(--soft)}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr));gap:1rem;align-items:start;
grid-auto-flow:dense}
section{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:1rem;min-width:0}
section.wide{grid-column:1/-1}
.scroll{overflow:auto;max-height:32rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top;min-width:4.5rem}
th{white-space:nowrap}
thead th{position:sticky;top:0;background:var(--panel)}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{display:block;width:100%;height:auto;max-width:40rem;margin:0 auto}
svg text{fill:var(--text);font-size:11px}svg .axis{stroke:var(--line);fill:none}
.legend{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.85rem;margin-top:.4rem}
.legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:50%;margin-right:.3rem}
#hover{position:fixed;display:none;pointer-events:none;background:var(--text);color:var(--back);padding:.1rem .5rem;
border-radius:.3rem;font-size:.85rem;max-width:80vw;z-index:9}
"""

# Shows the name of the point that is nearest to the mouse or the finger.
SCRIPT = """
const hover=document.getElementById("hover");
for(const drawing of document.querySelectorAll("svg[data-names]")){
const names=JSON.parse(document.getElementById(drawing.dataset.names).textContent);
const points=[...drawing.querySelectorAll("circle")];
const show=event=>{let best=-1,least=400;
points.forEach((point,index)=>{const box=point.getBoundingClientRect();
const across=box.x+box.width/2-event.clientX,down=box.y+box.height/2-event.clientY,far=across*across+down*down;
if(far<least){least=far;best=index}});
if(best<0){hover.style.display="none";return}
hover.textContent=names[best];hover.style.display="block";
const x=Math.min(event.clientX+12,innerWidth-hover.offsetWidth-4);
hover.style.left=Math.max(4,x)+"px";
hover.style.top=Math.max(4,event.clientY-hover.offsetHeight-8)+"px"};
drawing.addEventListener("pointermove",show);drawing.addEventListener("pointerdown",show);
drawing.addEventListener("pointerleave",()=>hover.style.display="none")}
"""


def text(value: object) -> str:
    """Any text as HTML that shows it as it is; what may not stand in a page becomes a replacement character."""
    return html.escape(FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(value)))


def page(title: str, subtitle: str, sections: Iterable[tuple[str, str, bool]]) -> str:
    """A page.

    Args:
        title, subtitle: plain text.
        sections: heading in plain text, content in HTML, and whether the section has the page's whole width.
    """
    parts = [
        f"<section{' class=wide' if wide else ''}><h2>{text(heading)}</h2>{content}</section>"
        for heading, content, wide in sections
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body><h1>{text(title)}</h1><p class=soft>{text(subtitle)}</p>\n<main>\n"
        + "\n".join(parts)
        + f"\n</main><div id=hover></div><script>{SCRIPT}</script></body></html>\n"
    )


def paragraph(content: str) -> str:
    return f"<p>{text(content)}</p>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = ()) -> str:
    """A table. Numbers are on the right of their columns; floats have four digits after the point.

    Args:
        right: the columns of texts that are numbers.
    """
    rows = [list(row) for row in rows]
    numeric = [name in right or any(_is_number(row[k]) for row in rows) for k, name in enumerate(header)]
    head = "".join(
        f"<th{' class=number' if right else ''}>{text(cell)}</th>" for cell, right in zip(header, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, numeric))}</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object, right: bool) -> str:
    if value is None:
        return f'<td class="soft{" number" if right else ""}">none</td>'
    if not _is_number(value):
        return f"<td{' class=number' if right else ''}>{text(value)}</td>"
    return (
        f"<td class=number>{value:,}</td>"
        if isinstance(value, int)
        else f"<td class=number>{readable_number(value)}</td>"
    )


def legend(colours: Iterable[tuple[str, str]]) -> str:
    """Names with a spot of their colour."""
    items = "".join(f'<span><i style="background:{colour}"></i>{text(name)}</span>' for name, colour in colours)
    return f"<div class=legend>{items}</div>"


def scatter(points: np.ndarray, names: Sequence[str], classes: Sequence[int] | None = None, key: str = "points") -> str:
    """Points ``[m, 2]`` that show their names under the mouse or the finger.

    Args:
        names: ``[m]``.
        classes: ``[m]``: the colour of each point by the number of its class; negative: unknown.
        key: name of this drawing's data in the page.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    spread = float((high - low).max()) or 1.0
    places = (points - (low + high) / 2) / spread * (WIDTH - 20) + WIDTH / 2
    radius = float(np.clip(60 / math.sqrt(len(points)), 1.2, 4))
    circles = "".join(
        f'<circle cx="{x:.1f}" cy="{WIDTH - y:.1f}" r="{radius:.1f}" fill="{colour_of(kind)}"/>'
        for (x, y), kind in zip(places, [0] * len(points) if classes is None else classes, strict=True)
    )
    # "</script>" in a name would end the data.
    data = json.dumps([FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", name) for name in names]).replace("<", "\\u003c")
    return (
        f'<svg viewBox="0 0 {WIDTH} {WIDTH}" data-names="{text(key)}" fill-opacity="0.8" role="img">{circles}</svg>'
        f'<script type="application/json" id="{text(key)}">{data}</script>'
    )


def colour_of(kind: int) -> str:
    """The colour of a class by its number; negative: unknown."""
    colour = UNKNOWN_COLOUR if kind < 0 else COLOURS[kind % len(COLOURS)]
    # Black would not be seen where the reader has chosen a dark page.
    return "var(--text)" if colour == "#000000" else colour


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str,
    unit_square: bool = False,
) -> str:
    """Lines with their legend.

    Args:
        series: name -> points from left to right, finite.
        x: label of the horizontal axis.
        unit_square: both axes from 0 to 1, with a diagonal and a mark at each point.
    """
    every = [point for points in series.values() for point in points]
    if unit_square:
        (left, right), (low, high) = (0.0, 1.0), (0.0, 1.0)
    else:
        (left, right), (low, high) = (_range(values) for values in zip(*every, strict=True))

    def place(a: float, b: float) -> tuple[float, float]:
        across = LEFT + _share(a, left, right) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - _share(b, low, high) * (HEIGHT - TOP - BOTTOM)

    (x0, y0), (x1, y1) = place(left, low), place(right, high)
    parts = [f'<path class=axis d="M{x0} {y1}V{y0}H{x1}"/>']
    for share in (0, 0.5, 1):
        across, up = (1 - share) * left + share * right, (1 - share) * low + share * high
        anchor = {0: "start", 1: "end"}.get(share, "middle")
        parts += [
            f'<text x="{place(across, low)[0]:.1f}" y="{y0 + 14}" text-anchor="{anchor}">{across:.3g}</text>',
            f'<text x="{x0 - 4}" y="{place(left, up)[1] + 4:.1f}" text-anchor="end">{up:.3g}</text>',
        ]
    parts.append(f'<text x="{(x0 + x1) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text(x)}</text>')
    if unit_square:
        parts.append(f'<path class=axis stroke-dasharray="4 4" d="M{x0} {y0}L{x1} {y1}"/>')
    colours = {name: colour_of(index) for index, name in enumerate(series)}
    for name, points in series.items():
        at = [place(*point) for point in points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        parts.append(f'<polyline fill="none" stroke="{colours[name]}" stroke-width="1.8" points="{path}"/>')
        if unit_square:
            parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colours[name]}"/>' for a, b in at]
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>{legend(colours.items())}'


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = max(0.5, abs(low) / 100)
    return (low, high) if low < high else (low - margin, high + margin)


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1. Halves are subtracted, because large numbers overflow."""
    return (value / 2 - low / 2) / (high / 2 - low / 2)
