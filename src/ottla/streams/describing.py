"""A topology as a picture: plain SVG without any library. Time goes from left to right, from sources to sinks.

Each node is a box with its label and what it does. It stands one column to the right of its last input, and in its
column as near as possible to the height of its inputs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from ottla.streams import graph
from ottla.streams.graph import Node, walk

_HEIGHT: Final = 44
_GAP_X: Final = 56
_GAP_Y: Final = 20
_MARGIN: Final = 16
_CHARACTER: Final = 7.2
"""How wide a character of the labels is, in pixels."""
_PADDING: Final = 24

_COLOURS: Final = {
    "topic": "#e8f0fe",
    "state": "#fef3dc",
    "column": "#e6f4ea",
    "function": "#f3e8fd",
    "other": "#f1f3f4",
}
_STYLE: Final = (
    "rect{stroke:#5f6368;stroke-width:1}path{fill:none;stroke:#5f6368;stroke-width:1.5}"
    "text{font:12px monospace;fill:#202124}.what{fill:#5f6368}"
)


@dataclass(frozen=True)
class _Box:
    node: Node
    title: str
    what: str
    colour: str
    x: float
    y: float
    width: float


def draw_svg(name: str, roots: Sequence[Node]) -> str:
    """The picture of all nodes that the roots need."""
    boxes = _arrange(walk(roots))
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + _HEIGHT for box in boxes.values()), default=0) + _MARGIN
    arrows = [_draw_arrow(boxes[id(each)], box) for box in boxes.values() for each in box.node.inputs]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{escape(name)}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" style="fill:#5f6368;stroke:none"/></marker></defs>',
            *arrows,
            *(_draw_box(box) for box in boxes.values()),
            "</svg>",
        ]
    )


def _arrange(nodes: Sequence[Node]) -> dict[int, _Box]:
    """A box for each node, by the node's id."""
    columns: dict[int, list[Node]] = defaultdict(list)
    depths: dict[int, int] = {}
    for node in nodes:
        depths[id(node)] = max((depths[id(each)] + 1 for each in node.inputs), default=0)
        columns[depths[id(node)]].append(node)
    boxes: dict[int, _Box] = {}
    x = float(_MARGIN)
    for depth in sorted(columns):
        texts = [_describe(node) for node in columns[depth]]
        width = max(len(text) for title, what, _ in texts for text in (title, what)) * _CHARACTER + _PADDING
        placed = sorted(zip(columns[depth], texts, strict=True), key=lambda pair: _wanted_height(pair[0], boxes))
        y = float(_MARGIN)
        for node, (title, what, colour) in placed:
            y = max(y, _wanted_height(node, boxes))
            boxes[id(node)] = _Box(node, title, what, colour, x, y, width)
            y += _HEIGHT + _GAP_Y
        x += width + _GAP_X
    return boxes


def _wanted_height(node: Node, boxes: dict[int, _Box]) -> float:
    """The mean height of the node's inputs."""
    heights = [boxes[id(each)].y for each in node.inputs]
    return sum(heights) / len(heights) if heights else _MARGIN


def _draw_box(box: _Box) -> str:
    radius = _HEIGHT / 2 if box.colour == "topic" else 5
    return (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{_HEIGHT}" rx="{radius:.0f}" '
        f'fill="{_COLOURS[box.colour]}"/>'
        f'<text x="{box.x + _PADDING / 2:.0f}" y="{box.y + 18:.0f}">{escape(box.title)}</text>'
        f'<text class="what" x="{box.x + _PADDING / 2:.0f}" y="{box.y + 35:.0f}">{escape(box.what)}</text>'
    )


def _draw_arrow(start: _Box, end: _Box) -> str:
    x1, y1 = start.x + start.width, start.y + _HEIGHT / 2
    x2, y2 = end.x, end.y + _HEIGHT / 2
    middle = (x1 + x2) / 2
    return (
        f'<path d="M{x1:.0f},{y1:.0f} C{middle:.0f},{y1:.0f} {middle:.0f},{y2:.0f} {x2:.0f},{y2:.0f}" '
        f'marker-end="url(#head)"/>'
    )


def _describe(node: Node) -> tuple[str, str, str]:
    """A title, what the node does, and the kind of its colour."""
    match node:
        case graph.Source():
            return node.topic, "table" if node.is_table else "stream", "topic"
        case graph.Sink():
            return node.topic or f"topic by {node.topic_column}", node.label, "topic"
        case graph.Aggregate():
            kind = "aggregate" if node.window is None else f"{node.window.kind} window, {node.emit}"
            return node.name, f"{kind} by {', '.join(node.key)}", "state"
        case graph.StreamJoin() | graph.TableJoin() | graph.ForeignKeyJoin() | graph.StreamTableJoin():
            return node.name, f"{node.how} join", "other" if isinstance(node, graph.StreamTableJoin) else "state"
        case graph.ToTable():
            return node.name, f"table by {', '.join(node.key)}", "state"
        case graph.Process():
            return node.name, getattr(node.processor, "__name__", "processor"), "state"
        case graph.ColumnStep():
            return node.label, ", ".join(node.columns.names), "column"
        case graph.FunctionStep():
            return node.label, f"{node.kind} in Python", "function"
        case graph.Rekey() | graph.Repartition():
            return node.label, f"by {', '.join(node.key)}", "other"
        case _:
            return node.label, type(node).__name__, "other"
