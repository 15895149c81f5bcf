"""The Processor API: a class of the user with state by key and timers, for what the other operators cannot do.

    class Fraud(Processor):
        total = ValueState("double", ttl="1 hour")

        def process(self, row, context):
            self.total.value = (self.total.value or 0) + row["amount"]
            context.timer("reset", context.timestamp + timedelta(minutes=5))
            if self.total.value > 1000:
                yield {"total": self.total.value}

        def on_timer(self, timer, context):
            self.total.clear()

State belongs to the key of the row or timer. An instance lives for one batch: what must be remembered is in states.

Timers are known by their key and name: setting one again moves it. A timer fires when all source partitions that the
task has heard of have reached its time, before the row that has moved the time is processed; several fire in the order
of their times. In Flink's words the watermark has reached it. Kafka Streams' punctuation goes by the highest time
instead, so a partition that runs ahead would fire timers of the others too early.

A state with a `ttl` forgets what was not written for so long, by the stream time of the rows: whatever the clock says,
the same input gives the same result.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, overload

import pyarrow as pa

from ottla.pipeline.formats.ddl import type_of_ddl
from ottla.streams import formats
from ottla.streams.errors import TopologyError
from ottla.streams.state.json_text import check_type
from ottla.streams.windows import Duration, parse_duration_ms

Time = datetime | int
"""A moment: a datetime, or milliseconds since 1970."""

Headers = Sequence[tuple[str, bytes | None]]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Emit:
    """A row with more than its columns: yield it in place of a dictionary."""

    row: Mapping[str, Any]
    output: str | None = None
    """The name of a further output; None for the main one."""
    timestamp: Time | None = None
    """None: the time of the row or timer that is processed."""
    headers: Headers | None = None
    """None: the headers of the row that is processed."""


Result = Mapping[str, Any] | tuple[str, Mapping[str, Any]] | Emit
"""What a Processor yields: a row for the main output, the name of an output with a row, or an Emit."""


@dataclass(frozen=True)
class Timer:
    """A timer that fires."""

    name: str
    time: datetime


class Context(Protocol):
    """What a Processor can ask for while it processes a row or a timer."""

    @property
    def key(self) -> Any:
        """The value of the key's column; a tuple if there are several."""

    @property
    def timestamp(self) -> datetime:
        """The time of the row, or the one that the timer was set to."""

    @property
    def stream_time(self) -> datetime:
        """The highest time that the row's source partition has reached; of a timer, what all have reached."""

    @property
    def headers(self) -> Headers:
        """The headers of the record; none for a timer."""

    @property
    def topic(self) -> str | None:
        """Where the row comes from: None for a timer, as `partition` and `offset` are."""

    @property
    def partition(self) -> int | None: ...

    @property
    def offset(self) -> int | None: ...

    def timer(self, name: str, when: Time) -> None:
        """Set a timer of this key. It replaces one with the same name. While a timer fires, `when` must be after it."""

    def cancel(self, name: str) -> None:
        """Cancel a timer of this key; nothing happens if there is none."""


class Processor(ABC):
    """The base of processors. `process` and `on_timer` yield rows, return a list of them, or return nothing."""

    @abstractmethod
    def process(self, row: dict[str, Any], context: Context) -> Iterable[Result] | None:
        """Process a row. It is a dictionary of its columns, those of the key included."""

    def on_timer(self, timer: Timer, context: Context) -> Iterable[Result] | None:
        """Process a timer that fires."""
        return None


class State:
    """The declaration of a state: an attribute of a Processor's class."""

    def __init__(self, *, ttl: Duration | None) -> None:
        self.ttl_ms = None if ttl is None else parse_duration_ms(ttl, f"{type(self).__name__}: ttl")
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class ValueState(State):
    """One value for each key. Read and assign `.value`; None, or `clear()`, deletes it.

    `type` is a type in SQL syntax such as "double", or fields such as "count long, last timestamp" for a dictionary.
    What `.value` returns is a copy: assign it again to change it.
    """

    def __init__(self, type: Any, *, ttl: Duration | None = None) -> None:
        super().__init__(ttl=ttl)
        self.type = _parse("ValueState", type)

    @overload
    def __get__(self, processor: None, owner: type) -> "ValueState": ...
    @overload
    def __get__(self, processor: Processor, owner: type) -> "Value": ...
    def __get__(self, processor: Processor | None, owner: type) -> "ValueState | Value":
        return self if processor is None else processor.__dict__[_slot(self.name)]


class MapState(State):
    """A dictionary for each key, such as `self.seen[id]`. The state of a key is one record: it must be below 900 KB."""

    def __init__(self, key_type: Any, value_type: Any, *, ttl: Duration | None = None) -> None:
        super().__init__(ttl=ttl)
        self.key_type = _parse("MapState", key_type)
        if pa.types.is_nested(self.key_type):
            raise TopologyError(f"MapState: keys cannot be {self.key_type}; use a string, a number or a timestamp")
        self.value_type = _parse("MapState", value_type)

    @overload
    def __get__(self, processor: None, owner: type) -> "MapState": ...
    @overload
    def __get__(self, processor: Processor, owner: type) -> MutableMapping[Any, Any]: ...
    def __get__(self, processor: Processor | None, owner: type) -> "MapState | MutableMapping[Any, Any]":
        return self if processor is None else processor.__dict__[_slot(self.name)]


class Value(Protocol):
    """A ValueState of the present key."""

    value: Any

    def clear(self) -> None: ...


def to_ms(time: Time, what: str) -> int:
    """Milliseconds since 1970. A datetime without a time zone is in UTC. ValueError if it is none, or before 1970."""
    if isinstance(time, datetime):
        zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
        found = (zoned - _EPOCH) // timedelta(milliseconds=1)
    elif isinstance(time, int) and not isinstance(time, bool):
        found = time
    else:
        raise ValueError(f"{what}: {time!r} is neither a datetime nor a number of milliseconds")
    if found < 0:
        raise ValueError(f"{what}: {time!r} is before 1970")
    return found


def to_datetime(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def states_of(processor: type) -> dict[str, State]:
    """The states that a class declares, its bases included, by name."""
    found: dict[str, State] = {}
    for each in reversed(processor.__mro__):
        found |= {name: state for name, state in vars(each).items() if isinstance(state, State)}
    return found


def state_columns(processor: type) -> pa.Schema:
    """The columns of a processor's store: its states by name, a MapState as a map."""
    columns = []
    for name, state in states_of(processor).items():
        if isinstance(state, ValueState):
            columns.append(pa.field(name, state.type))
        elif isinstance(state, MapState):
            columns.append(pa.field(name, pa.map_(state.key_type, state.value_type)))
    return pa.schema(columns)


def bind(processor: Processor, name: str, state: Any) -> None:
    """Make `state` what the attribute `name` of this processor returns."""
    processor.__dict__[_slot(name)] = state


def _slot(name: str) -> str:
    return f"state {name}"


def _parse(what: str, given: Any) -> pa.DataType:
    """The type that a text in SQL syntax names, or fields as a struct; types of Spark and Arrow are fine as well."""
    try:
        kind = _parse_text(given) if isinstance(given, str) else formats.json(given).type
        check_type(kind, what)
    except ValueError as error:
        raise TopologyError(f"{what}: {error}") from None
    return kind


def _parse_text(text: str) -> pa.DataType:
    try:
        return type_of_ddl(f"value {text}").field(0).type
    except ValueError:
        return type_of_ddl(text)
