"""The state of one key of a Processor: values, maps and timers, as one JSON object in the processor's store.

    {"total": 12.5, "seen": {"a": 1}, "_times": {"total": 1000, "seen": [1000]}, "_timers": {"reset": 5000},
     "_cleanup": 3601000}

`_times` has the stream time of the last write, for states with a TTL only; of a map, one for each entry in order.
`_cleanup` is when the next state or entry may have expired. Inside, values are kept as they are in JSON, and turned
into Python's objects when the user reads them.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

import orjson
import pyarrow as pa

from ottla.streams.errors import StreamsError
from ottla.streams.processors import MapState, State, ValueState
from ottla.streams.state.json_values import make_reader, make_writer

STATE_BYTES_MAX: Final = 900_000
"""The state of one key is one record of the changelog."""

_TIMES, _TIMERS, _CLEANUP = "_times", "_timers", "_cleanup"


class KeyState:
    """The state of one key during a batch."""

    def __init__(self, content: bytes | None, states: Mapping[str, State]) -> None:
        self._states = states
        found: dict[str, Any] = orjson.loads(content or b"{}")
        times = found.get(_TIMES, {})
        self.values: dict[str, tuple[Any, int]] = {}
        """Values by name, each with the stream time of its last write."""
        self.maps: dict[str, dict[Any, tuple[Any, int]]] = {}
        self.timers: dict[str, int] = found.get(_TIMERS, {})
        self.cleanup: int | None = found.get(_CLEANUP)
        self.is_changed = False
        for name, state in states.items():
            value = found.get(name)
            if value is None:
                continue
            if isinstance(state, MapState):
                pairs = list(value.items() if isinstance(value, dict) else value)
                entry_times = times.get(name) or [0] * len(pairs)
                self.maps[name] = {key: (each, time) for (key, each), time in zip(pairs, entry_times, strict=True)}
            else:
                self.values[name] = (value, times.get(name, 0))

    def encode(self, key: bytes) -> bytes | None:
        """None if nothing is left. StreamsError if it is too large for one record."""
        found: dict[str, Any] = {}
        times: dict[str, Any] = {}
        for name, (value, time) in self.values.items():
            found[name] = value
            if self._states[name].ttl_ms is not None:
                times[name] = time
        for name, entries in self.maps.items():
            if entries:
                pairs = [(each, value) for each, (value, _) in entries.items()]
                state = self._states[name]
                is_object = isinstance(state, MapState) and pa.types.is_string(state.key_type)
                found[name] = dict(pairs) if is_object else pairs
                if state.ttl_ms is not None:
                    times[name] = [time for _, time in entries.values()]
        further = {_TIMES: times, _TIMERS: self.timers, _CLEANUP: self.cleanup}
        found |= {name: value for name, value in further.items() if value}
        encoded = orjson.dumps(found) if found else None
        if encoded is not None and len(encoded) > STATE_BYTES_MAX:
            raise StreamsError(
                f"the state of key {key!r:.100} has {len(encoded)} bytes, more than fit into one record "
                f"({STATE_BYTES_MAX}): use a finer key, or a ttl"
            )
        return encoded

    def copy(self) -> "KeyState":
        """A copy that changes of this one do not touch. Values are replaced, never changed, so they are shared."""
        copied = KeyState(None, self._states)
        copied.values, copied.timers = dict(self.values), dict(self.timers)
        copied.maps = {name: dict(entries) for name, entries in self.maps.items()}
        copied.cleanup, copied.is_changed = self.cleanup, self.is_changed
        return copied

    def expire(self, now: int) -> None:
        """Remove what has expired, and note when to look again."""
        self.is_changed = True
        for name, (_, time) in list(self.values.items()):
            if self.is_expired(name, time, now):
                del self.values[name]
        for name, entries in self.maps.items():
            self.maps[name] = {key: each for key, each in entries.items() if not self.is_expired(name, each[1], now)}
        self.cleanup = min(self._ends(), default=None)

    def plan_cleanup(self) -> bool:
        """Note when to look for what has expired, if that is not planned yet. Returns whether it is new."""
        if self.cleanup is None:
            self.cleanup = min(self._ends(), default=None)
            return self.cleanup is not None
        return False

    def is_expired(self, name: str, time: int, now: int) -> bool:
        ttl_ms = self._states[name].ttl_ms
        return ttl_ms is not None and now >= time + ttl_ms

    def _ends(self) -> Iterator[int]:
        for name, state in self._states.items():
            if state.ttl_ms is not None:
                if name in self.values:
                    yield self.values[name][1] + state.ttl_ms
                yield from (time + state.ttl_ms for _, time in self.maps.get(name, {}).values())


class Present:
    """The key that is processed, and the stream time: what the states of a processor refer to."""

    state: KeyState
    now: int


class BoundValue:
    """A ValueState of the present key."""

    def __init__(self, declared: ValueState, present: Present) -> None:
        self._name = declared.name
        self._write, self._read = make_writer(declared.type), make_reader(declared.type, for_python=True)
        self._present = present

    @property
    def value(self) -> Any:
        state = self._present.state
        value, time = state.values.get(self._name, (None, 0))
        return None if value is None or state.is_expired(self._name, time, self._present.now) else self._read(value)

    @value.setter
    def value(self, value: Any) -> None:
        if value is None:
            return self.clear()
        self._present.state.values[self._name] = (write(self._write, value, self._name), self._present.now)
        self._present.state.is_changed = True

    def clear(self) -> None:
        if self._present.state.values.pop(self._name, None) is not None:
            self._present.state.is_changed = True


class BoundMap(MutableMapping[Any, Any]):
    """A MapState of the present key."""

    def __init__(self, declared: MapState, present: Present) -> None:
        self._name = declared.name
        key_type, value_type = declared.key_type, declared.value_type
        self._write_key, self._read_key = make_writer(key_type), make_reader(key_type, for_python=True)
        self._write, self._read = make_writer(value_type), make_reader(value_type, for_python=True)
        self._present = present

    def __getitem__(self, key: Any) -> Any:
        value, time = self._entries()[self._key(key)]
        if self._present.state.is_expired(self._name, time, self._present.now):
            raise KeyError(key)
        return self._read(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        entries = self._present.state.maps.setdefault(self._name, {})
        entries[self._key(key)] = (write(self._write, value, self._name), self._present.now)
        self._present.state.is_changed = True

    def __delitem__(self, key: Any) -> None:
        del self._entries()[self._key(key)]
        self._present.state.is_changed = True

    def __iter__(self) -> Iterator[Any]:
        for key, (_, time) in list(self._entries().items()):
            if not self._present.state.is_expired(self._name, time, self._present.now):
                yield self._read_key(key)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        if self._present.state.maps.pop(self._name, None):
            self._present.state.is_changed = True

    def _entries(self) -> dict[Any, tuple[Any, int]]:
        return self._present.state.maps.get(self._name, {})

    def _key(self, key: Any) -> Any:
        if key is None:
            raise ValueError(f"state {self._name!r}: a key cannot be None")
        return write(self._write_key, key, self._name)


def write(writer: Any, value: Any, name: str) -> Any:
    """The value as it is stored. ValueError, which names the state, if it does not fit."""
    try:
        return writer(value)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"state {name!r}: {error}") from None


def bind_states(states: Mapping[str, State], present: Present) -> dict[str, BoundValue | BoundMap]:
    return {
        name: BoundMap(state, present) if isinstance(state, MapState) else BoundValue(state, present)
        for name, state in states.items()
        if isinstance(state, MapState | ValueState)
    }
