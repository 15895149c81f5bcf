"""Draws docs/pictures/*-states.svg from the transition tables of the coordinators.

    python tools/draw_states.py          # writes the pictures; a test fails when they are out of date

This file decides only where each box is. The arrows come from the transition table, and so do their reasons, if the
table has any: an arrow shows the number of its reason, and the reasons are listed below the picture.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from ottla.coordinators.classic import states as classic_states
from ottla.coordinators.consumer import descriptions as consumer_descriptions
from ottla.coordinators.transactions import transaction

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

CELL_WIDTH, CELL_HEIGHT = 250, 130
BOX_WIDTH, BOX_HEIGHT = 180, 46
MARGIN = 30
TITLE_HEIGHT = 40
LINE_HEIGHT = 22
BEND = 26.0
"""How far an arrow bends to its left, which keeps the two arrows between a pair of states apart."""
HEAD = 9.0
LABEL_AT = 0.4
"""Where on an arrow its number is. Not in the middle, where many arrows cross."""

Transitions = Mapping[Any, Collection[Any]]
Point = tuple[float, float]


class Picture(NamedTuple):
    name: str
    title: str
    transitions: Transitions
    places: Mapping[Any, Point]
    """Column and row of each state."""


class Arrow(NamedTuple):
    begin: Point
    control: Point
    end: Point
    reason: str | None

    def at(self, part: float) -> Point:
        """The point after this part of the curve, from 0 to 1."""
        (x0, y0), (x1, y1), (x2, y2) = self.begin, self.control, self.end
        first, second, third = (1 - part) ** 2, 2 * part * (1 - part), part**2
        return first * x0 + second * x1 + third * x2, first * y0 + second * y1 + third * y2


_CLASSIC, _CONSUMER, _TRANSACTION = classic_states.ClassicState, consumer_descriptions.ConsumerState, transaction.State

PICTURES = (
    Picture(
        "classic-group-states",
        "A classic group",
        classic_states.TRANSITIONS,
        {
            _CLASSIC.EMPTY: (0, 0),
            _CLASSIC.PREPARING_REBALANCE: (1, 0),
            _CLASSIC.COMPLETING_REBALANCE: (2, 0),
            _CLASSIC.STABLE: (2, 1.5),
            _CLASSIC.DEAD: (0, 1.5),
        },
    ),
    Picture(
        "consumer-group-states",
        "A consumer group",
        consumer_descriptions.TRANSITIONS,
        {
            _CONSUMER.EMPTY: (0, 0),
            _CONSUMER.ASSIGNING: (1.2, 0),
            _CONSUMER.RECONCILING: (1.2, 2),
            _CONSUMER.STABLE: (0, 2),
            _CONSUMER.DEAD: (2.4, 1),
        },
    ),
    Picture(
        "transaction-states",
        "A transactional id",
        transaction.TRANSITIONS,
        {
            _TRANSACTION.EMPTY: (0, 1),
            _TRANSACTION.ONGOING: (1, 1),
            _TRANSACTION.PREPARE_COMMIT: (2, 0),
            _TRANSACTION.COMPLETE_COMMIT: (1, 0),
            _TRANSACTION.PREPARE_ABORT: (2, 2),
            _TRANSACTION.COMPLETE_ABORT: (1, 2),
            _TRANSACTION.DEAD: (0, 2),
        },
    ),
)


def draw(picture: Picture) -> str:
    assert set(picture.places) == set(picture.transitions), f"{picture.name}: a state has no place"
    arrows = list(find_arrows(picture))
    reasons = list(dict.fromkeys(arrow.reason for arrow in arrows if arrow.reason is not None))
    columns = max(x for x, _ in picture.places.values())
    rows = max(y for _, y in picture.places.values())
    width = columns * CELL_WIDTH + BOX_WIDTH + 2 * MARGIN
    below = TITLE_HEIGHT + rows * CELL_HEIGHT + BOX_HEIGHT + 2 * MARGIN
    height = below + LINE_HEIGHT * len(reasons)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="14">',
        f"  <title>{escape(picture.title)}: its states</title>",
        f'  <rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        f'  <text x="{MARGIN}" y="{MARGIN}" font-size="16" font-weight="bold" fill="#1d2b3a">'
        f"{escape(picture.title)}</text>",
    ]
    for arrow in arrows:
        lines += draw_arrow(arrow, reasons)
    for state in picture.places:
        lines += draw_box(state, find_centre(picture.places[state]))
    for number, reason in enumerate(reasons, start=1):
        y = below + LINE_HEIGHT * (number - 1)
        lines.append(f'  <text x="{MARGIN}" y="{y:g}" fill="#1d2b3a">{number}. {escape(reason)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def find_arrows(picture: Picture) -> Iterator[Arrow]:
    for state, followers in picture.transitions.items():
        for follower in sorted(followers, key=list(picture.places).index):
            if follower is state:
                continue  # a transition to the same state has no arrow
            begin, end = find_centre(picture.places[state]), find_centre(picture.places[follower])
            control = find_control_point(begin, end)
            reason = followers[follower] if isinstance(followers, Mapping) else None
            yield Arrow(find_border_point(begin, control), control, find_border_point(end, control), reason)


def find_centre(place: Point) -> Point:
    column, row = place
    return MARGIN + BOX_WIDTH / 2 + column * CELL_WIDTH, TITLE_HEIGHT + MARGIN + BOX_HEIGHT / 2 + row * CELL_HEIGHT


def find_control_point(begin: Point, end: Point) -> Point:
    """The control point of the curve: to the left of the middle, seen in the direction of the arrow."""
    (x0, y0), (x1, y1) = begin, end
    length = hypot(x1 - x0, y1 - y0)
    return (x0 + x1) / 2 + (y1 - y0) / length * BEND, (y0 + y1) / 2 - (x1 - x0) / length * BEND


def find_border_point(middle: Point, towards: Point) -> Point:
    """Where the line from the centre of a box towards a point leaves the box."""
    x, y = towards[0] - middle[0], towards[1] - middle[1]
    reach = min(BOX_WIDTH / 2 / abs(x) if x else 1e9, BOX_HEIGHT / 2 / abs(y) if y else 1e9)
    return middle[0] + x * reach, middle[1] + y * reach


def draw_arrow(arrow: Arrow, reasons: list[str]) -> Iterator[str]:
    (x0, y0), (x1, y1), (x2, y2) = arrow.begin, arrow.control, arrow.end
    length = hypot(x2 - x1, y2 - y1)
    along_x, along_y = (x2 - x1) / length * HEAD, (y2 - y1) / length * HEAD
    yield (
        f'  <path d="M{x0:.1f} {y0:.1f} Q{x1:.1f} {y1:.1f} {x2:.1f} {y2:.1f}" '
        'fill="none" stroke="#33475b" stroke-width="1.5"/>'
    )
    left_x, left_y = x2 - along_x - along_y / 2, y2 - along_y + along_x / 2
    right_x, right_y = x2 - along_x + along_y / 2, y2 - along_y - along_x / 2
    yield (f'  <path d="M{x2:.1f} {y2:.1f} L{left_x:.1f} {left_y:.1f} L{right_x:.1f} {right_y:.1f} z" fill="#33475b"/>')
    if arrow.reason is not None:
        x, y = arrow.at(LABEL_AT)
        yield f'  <circle cx="{x:.1f}" cy="{y:.1f}" r="10" fill="#fdf3e1" stroke="#8a5a00"/>'
        yield (
            f'  <text x="{x:.1f}" y="{y + 4:.1f}" font-size="12" text-anchor="middle" fill="#1d2b3a">'
            f"{reasons.index(arrow.reason) + 1}</text>"
        )


def draw_box(state: Enum, middle: Point) -> Iterator[str]:
    x, y = middle
    yield (
        f'  <rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
        'rx="8" fill="#eef4fa" stroke="#33475b" stroke-width="1.5"/>'
    )
    yield f'  <text x="{x:g}" y="{y + 5:g}" text-anchor="middle" fill="#1d2b3a">{escape(format_state(state))}</text>'


def format_state(state: Enum) -> str:
    """The name of the state in Kafka's tools."""
    return state.value if isinstance(state.value, str) else state.name.title().replace("_", "")


if __name__ == "__main__":
    for each in PICTURES:
        (FOLDER / f"{each.name}.svg").write_text(draw(each), encoding="utf-8")
