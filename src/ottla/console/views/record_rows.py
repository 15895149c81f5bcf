"""Records as the rows of a page, and the parameters that choose them."""

from datetime import UTC, datetime
from typing import NamedTuple

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Client
from ottla.console.calls import BadInput, Call, parse_number
from ottla.console.facts.decoding import FORMATS, Shown
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.records import FoundRecord, Matcher, Page, Scan, scan
from ottla.console.facts.searching import ANYWHERE, FIELD, PLACES, Search, make_matcher
from ottla.topic_partition import TopicPartition

INT64_MAX = (1 << 63) - 1
NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"
STARTS = (NEWEST, OLDEST, OFFSET, TIME)
LIMIT = 50
LIMIT_MAX = 1_000
EXPORT_MAX = 10_000
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Choice(NamedTuple):
    """What the parameters of a records page choose."""

    topic: str
    partition: int | None
    start: str
    number: int | None
    """The offset or the time in milliseconds."""
    limit: int
    search: Search
    key_format: str
    value_format: str
    isolation: int
    positions: str
    """Where an earlier page stopped."""


class RecordRow(NamedTuple):
    record: FoundRecord
    key: Shown
    value: Shown
    headers: list[tuple[str, str]]

    @property
    def is_cut(self) -> bool:
        """Whether the page does not show all of the key and the value."""
        return self.key.is_cut or self.value.is_cut


def read_choice(call: Call, limit_max: int = LIMIT_MAX) -> Choice:
    start = call.choice("start", STARTS)
    number: int | None = None
    if start == OFFSET:
        number = call.number("offset", 0, 0, INT64_MAX)
    if start == TIME:
        number = parse_time(call.text("time"), call.console.now_ms())
    partition = call.text("partition")
    place = call.choice("in", PLACES)
    field = call.text("field").strip()
    if place == FIELD and not field:
        place = ANYWHERE
    return Choice(
        call.path("name"),
        parse_number(partition, "partition", 0, (1 << 31) - 1) if partition else None,
        start,
        number,
        call.number("limit", LIMIT, 1, limit_max),
        Search(call.text("q"), place, field, call.text("pattern") == "1"),
        call.choice("keys", FORMATS),
        call.choice("values", FORMATS),
        READ_COMMITTED if call.text("committed") == "1" else READ_UNCOMMITTED,
        call.text("at"),
    )


def parse_time(text: str, now_ms: int) -> int:
    """2026-01-31T18:00[:00][Z], milliseconds since 1970, or 15m, 2h, 7d for so long ago."""
    text = text.strip()
    if text.isdecimal():
        return parse_number(text, "time", 0, INT64_MAX)
    if text[:-1].isdecimal() and text[-1:] in _UNITS_S:
        return max(now_ms - parse_number(text[:-1], "time", 0, INT64_MAX) * _UNITS_S[text[-1]] * 1000, 0)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"time: {text!r} is neither 2026-01-31T18:00, nor 15m, 2h or 7d, nor milliseconds") from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return max(int(found.timestamp() * 1000), 0)


def read_page(call: Call, client: Client, choice: Choice) -> Page:
    """The records that the choice asks for."""
    snapshot = call.console.metadata.get()
    topic = snapshot.topic(choice.topic)
    numbers = [part.number for part in topic.partitions if choice.partition in (None, part.number)]
    if not numbers:
        raise BadInput(f"topic {choice.topic!r} has no partition {choice.partition}")
    places = [TopicPartition(choice.topic, number) for number in numbers]
    first = list_offsets(client, snapshot, places, EARLIEST)
    end = list_offsets(client, snapshot, places, LATEST, choice.isolation)
    there = [where for where in places if where in first and where in end]
    lows, highs = ({where.partition: found[where] for where in there} for found in (first, end))
    positions = _find_positions(call, client, choice, there, lows, highs)
    matches = make_search(call, choice)
    backwards = choice.start == NEWEST
    return scan(client, Scan(choice.topic, lows, highs, positions, backwards, choice.limit, choice.isolation), matches)


def make_search(call: Call, choice: Choice) -> Matcher | None:
    try:
        return make_matcher(choice.search, call.console.decoder, choice.key_format, choice.value_format)
    except ValueError as error:
        raise BadInput(str(error)) from None


def _find_positions(
    call: Call,
    client: Client,
    choice: Choice,
    there: list[TopicPartition],
    lows: dict[int, int],
    highs: dict[int, int],
) -> dict[int, int]:
    if choice.positions:
        given = parse_positions(choice.positions)
        return {
            where.partition: min(max(given[where.partition], lows[where.partition]), highs[where.partition])
            for where in there
            if where.partition in given
        }
    if choice.start == NEWEST:
        return dict(highs)
    if choice.start == OLDEST or choice.number is None:
        return dict(lows)
    if choice.start == OFFSET:
        return {part: min(max(choice.number, low), highs[part]) for part, low in lows.items()}
    at_time = list_offsets(client, call.console.metadata.get(), there, choice.number)
    return {
        where.partition: at_time[where] if at_time.get(where, -1) >= 0 else highs[where.partition] for where in there
    }


def write_positions(positions: dict[int, int]) -> str:
    """0:123,1:456"""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_positions(text: str) -> dict[int, int]:
    try:
        pairs = (pair.split(":") for pair in text.split(","))
        return {int(partition): min(max(int(offset), 0), INT64_MAX) for partition, offset in pairs}
    except ValueError:
        raise BadInput("at: not a list of positions") from None


def make_rows(call: Call, choice: Choice, records: list[FoundRecord]) -> list[RecordRow]:
    decoder = call.console.decoder
    return [
        RecordRow(
            record,
            decoder.show(record.key, choice.key_format),
            decoder.show(record.value, choice.value_format),
            [(name, decoder.show(value).pretty) for name, value in record.headers],
        )
        for record in records
    ]
