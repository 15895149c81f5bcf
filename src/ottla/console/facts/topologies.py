"""The topology of a Streams app as a picture: topics and subtopologies as boxes, from left to right.

It is made from the text that an app registers (`ottla.streams.planning.description`), so it needs no part of the app.
"""

from typing import NamedTuple

TOPIC, PART, STORE = "topic", "part", "store"
_COLUMN = 44
_ROW = 18
_LINE = 18
_MARGIN = 12
_CHARACTER = 7.25
_PADDING = 28
_LINE_MAX = 60
_LANE = 14
"""The distance between arrows that lead back, which pass below all boxes."""
_KEYS = ("reads", "Spark", "step", "writes")


class Box(NamedTuple):
    kind: str
    title: str
    lines: list[str]
    x: float
    y: float
    width: float
    height: float


class Arrow(NamedTuple):
    path: str


class Drawing(NamedTuple):
    boxes: list[Box]
    arrows: list[Arrow]
    width: float
    height: float


class Subtopology(NamedTuple):
    name: str
    reads: list[str]
    lines: list[str]
    writes: list[str]


def parse(description: str) -> list[Subtopology]:
    found: list[Subtopology] = []
    for line in description.splitlines():
        if line.startswith("subtopology "):
            found.append(Subtopology(line.removeprefix("subtopology ").strip(), [], [], []))
            continue
        key, _, rest = line.strip().partition(" ")
        if not line.startswith("  ") or not found or key not in _KEYS:
            continue
        text = rest.strip()
        if key == "reads":
            found[-1].reads.append(text.removesuffix(" as a table"))
        elif key == "writes":
            found[-1].writes.append(text.partition(" by ")[0])
        elif key == "step":
            found[-1].lines.append(text)
        elif key == "Spark":
            found[-1].lines.append(f"Spark: {text}")
    return [each._replace(lines=_shorten(each.lines)) for each in found]


def _shorten(lines: list[str]) -> list[str]:
    """Without steps that repeat the one before them: a join is several, and one of them names its store."""
    found: list[str] = []
    for line in lines:
        cut = line if len(line) <= _LINE_MAX else line[: _LINE_MAX - 1] + "…"
        if found and cut.startswith(found[-1]):
            found[-1] = cut
        elif not found or not found[-1].startswith(cut):
            found.append(cut)
    return found


def draw(description: str) -> Drawing | None:
    """None if the text describes no topology."""
    parts = parse(description)
    if not parts:
        return None
    depths = _find_depths(parts)
    nodes: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for topic in (*part.reads, *part.writes):
            nodes.setdefault((TOPIC, topic), [])
        nodes[PART, part.name] = part.lines
    boxes = _arrange(nodes, depths)
    pairs = []
    for part in parts:
        here = boxes[PART, part.name]
        pairs += [(boxes[TOPIC, topic], here) for topic in part.reads]
        pairs += [(here, boxes[TOPIC, topic]) for topic in part.writes]
    width = max(box.x + box.width for box in boxes.values()) + _MARGIN
    height = max(box.y + box.height for box in boxes.values()) + _MARGIN
    arrows = []
    for source, target in pairs:
        if target.x > source.x:
            arrows.append(_connect(source, target))
            continue
        height += _LANE
        width = max(width, source.x + source.width + _COLUMN / 2 + _MARGIN)
        arrows.append(_lead_back(source, target, height - _MARGIN))
    return Drawing(list(boxes.values()), arrows, width, height)


def _find_depths(parts: list[Subtopology]) -> dict[tuple[str, str], int]:
    """The column of each node: behind everything that it comes from. A cycle ends after as many rounds as nodes."""
    depths: dict[tuple[str, str], int] = {}
    for _ in range(len(parts) + 1):
        for part in parts:
            here = max((depths.setdefault((TOPIC, topic), 0) for topic in part.reads), default=-1) + 1
            depths[PART, part.name] = min(here, 2 * len(parts))
            for topic in part.writes:
                if topic not in part.reads:
                    behind = min(depths[PART, part.name] + 1, 2 * len(parts) + 1)
                    depths[TOPIC, topic] = max(depths.get((TOPIC, topic), 0), behind)
    return depths


def _arrange(nodes: dict[tuple[str, str], list[str]], depths: dict[tuple[str, str], int]) -> dict[tuple[str, str], Box]:
    columns: dict[int, list[tuple[str, str]]] = {}
    for node in nodes:
        columns.setdefault(depths.get(node, 0), []).append(node)
    boxes: dict[tuple[str, str], Box] = {}
    x = float(_MARGIN)
    for depth in sorted(columns):
        texts = [text for node in columns[depth] for text in (node[1], *nodes[node])]
        width = max(map(len, texts)) * _CHARACTER + _PADDING
        y = float(_MARGIN)
        for node in columns[depth]:
            height = 32.0 + _LINE * len(nodes[node])
            boxes[node] = Box(node[0], node[1], nodes[node], x, y, width, height)
            y += height + _ROW
        x += width + _COLUMN
    return boxes


def _connect(source: Box, target: Box) -> Arrow:
    x1, y1 = source.x + source.width, source.y + source.height / 2
    x2, y2 = target.x, target.y + target.height / 2
    middle = (x1 + x2) / 2
    return Arrow(f"M{x1:.1f},{y1:.1f} C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}")


def _lead_back(source: Box, target: Box, y: float) -> Arrow:
    """To a box further left, below all boxes at the height `y`."""
    x1, y1 = source.x + source.width, source.y + source.height / 2
    x2, y2 = target.x, target.y + target.height / 2
    out = _COLUMN / 2
    return Arrow(
        f"M{x1:.1f},{y1:.1f} C{x1 + out:.1f},{y1:.1f} {x1 + out:.1f},{y:.1f} {x1:.1f},{y:.1f}"
        f" L{x2:.1f},{y:.1f} C{x2 - out:.1f},{y:.1f} {x2 - out:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    )
