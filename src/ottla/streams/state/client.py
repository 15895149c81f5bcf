"""The client of a state server: `StateClient(address, token).reader(store, partition, upto)` is what a kernel reads.

A server that is still restoring a table is waited for up to a limit, and one that is away for a moment only: if it was
started again, it has another address, which the driver knows. Every request may be sent twice, so a lost connection
needs no more than another one.
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, Self

from ottla.client.backoff import Backoff
from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state import protocol
from ottla.streams.state.assignments import describe_store
from ottla.streams.state.connections import FrameSocket
from ottla.streams.state.protocol import Frame, ProtocolError, StateAhead, StateLost, pack_many, unpack_many

WAIT_S: Final = 10.0
"""The other tasks of a batch wait with the one whose table is being restored, so it is not long."""
AWAY_S: Final = 2.0
_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 90.0
"""A server answers within seconds; reading a topic may take until its client gives up on the broker."""
_KEY_BYTES: Final = 8 * 1024 * 1024
"""The keys of one request."""


class StateUnavailable(StreamsError):
    """A state server cannot be reached, or has not restored a table within the limit."""


class StateRestoring(StateUnavailable):
    """A table was not restored within the limit, but its restore has come further meanwhile."""


class StateRefused(StreamsError):
    """A state server refuses a request, or a token."""


class StateClient:
    """One connection to one state server, opened when it is first needed. Belongs to one thread."""

    def __init__(self, address: str, token: str, *, wait_s: float = WAIT_S) -> None:
        """`address` is host:port. `wait_s` is how long a server is waited for that is away or restoring."""
        self.address = address
        self._token = token
        self._wait_s = wait_s
        self._connection: FrameSocket | None = None
        self._random = Random(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. The next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def reader(self, store: str, partition: int, upto: int | None) -> "RemoteReader":
        """The state of a store and partition after all records of its changelog before the offset `upto`; with None as
        it stands, for people who ask."""
        return RemoteReader(self, store, partition, upto)

    def advance(self, store: str, partition: int, upto: int) -> None:
        """Returns when the state holds all records of its changelog before the offset `upto`."""
        self.ask(protocol.ADVANCE, {"store": store, "partition": partition, "upto": upto})

    def assign(self, plan: StorePlan, partitions: Mapping[int, int], partition_count: int) -> None:
        """Makes the server keep these partitions of a store, of all `partition_count` of them. It begins to restore
        them up to the offsets that `partitions` has for them; a state that is beyond its offset is made anew."""
        wanted = {str(partition): upto for partition, upto in partitions.items()}
        fields = {"store": describe_store(plan), "partitions": wanted, "partition_count": partition_count}
        self.ask(protocol.ASSIGN, fields)

    def status(self) -> list[dict[str, Any]]:
        """What the server says about each of its tables: store, partition, state (ready, restoring or failed),
        position, target, records, error and so on."""
        found: list[dict[str, Any]] = self.ask(protocol.STATUS, {}).fields["tables"]
        return found

    def drop(self, store: str, partition: int, *, wipe: bool = False) -> None:
        """Makes the server close a table, and also remove its files with `wipe`."""
        self.ask(protocol.DROP, {"store": store, "partition": partition, "wipe": wipe})

    def stop(self) -> None:
        """Ends the server. Returns when it has written its tables to files."""
        self.ask(protocol.STOP, {})
        self.close()

    def ask(self, kind: int, fields: Mapping[str, Any], payload: bytes = b"") -> Frame:
        """The answer to a request, once there is one that is not to be asked for again.

        StateUnavailable after the limit, StateAhead if the state has gone on, StateLost if it is incomplete for good,
        StateRefused for a wrong request.
        """
        request = protocol.encode_frame(kind, fields, payload)
        patience = self._make_backoff(self._wait_s)
        absence: Backoff | None = None
        applied: set[int] = set()  # the counts of applied records, which grow while a restore goes on
        while True:
            try:
                answer = self._exchange(request)
            except OSError as error:
                self.close()
                reason = f"cannot reach it: {error.strerror or error}"
                absence = absence or self._make_backoff(min(self._wait_s, AWAY_S))
            except ProtocolError as error:
                self.close()
                raise StateRefused(f"{self.address} does not answer as a state server does: {error}") from None
            else:
                absence = None
                if answer.kind == protocol.OK:
                    return answer
                reason = str(answer.fields.get("message"))
                if answer.kind == protocol.RESTORING:
                    applied.add(protocol.take_number(answer.fields, "applied"))
                _raise_if_final(answer.kind, f"state server {self.address}: {reason}")
            backoff = absence or patience
            if not backoff.pause():
                kind_of_error = StateRestoring if len(applied) > 1 else StateUnavailable
                raise kind_of_error(f"state server {self.address}: {reason} (waited {backoff.limit_s:g} s)")

    def _make_backoff(self, limit_s: float) -> Backoff:
        return Backoff(limit_s, self._random, pause_s=0.02, pause_max_s=0.5)

    def _exchange(self, request: bytes) -> Frame:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.send(request)
        return self._connection.receive(protocol.FRAME_BYTES_MAX)

    def _connect(self) -> FrameSocket:
        host, _, port = self.address.rpartition(":")
        if not port.isdecimal():
            raise StateRefused(f"{self.address!r} is not the address of a state server, host:port")
        connection = FrameSocket(socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S))
        try:
            challenge = connection.receive(protocol.HELLO_BYTES_MAX)
            proof = protocol.prove(self._token, challenge.payload)
            connection.send(protocol.encode_frame(protocol.HELLO, {}, proof))
            welcome = connection.receive(protocol.HELLO_BYTES_MAX)
            if welcome.kind != protocol.OK:
                raise StateRefused(f"state server {self.address}: {welcome.fields.get('message')}")
        except BaseException:
            connection.close()
            raise
        connection.set_timeout(_ANSWER_S)
        return connection


def _raise_if_final(kind: int, message: str) -> None:
    """Raises what an answer means, unless the request is to be sent again."""
    if kind == protocol.AHEAD:
        raise StateAhead(message)
    if kind == protocol.LOST:
        raise StateLost(message)
    if kind == protocol.REFUSED:
        raise StateRefused(message)
    if kind == protocol.FAILED:
        raise StateUnavailable(message)


class RemoteReader:
    """A StateReader whose state is in a state server."""

    def __init__(self, client: StateClient, store: str, partition: int, upto: int | None) -> None:
        self._client = client
        self._fields = {"store": store, "partition": partition, "upto": upto}

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys. Keys that come in order are found faster."""
        found: list[bytes | None] = []
        while len(found) < len(keys):
            part = _take_part(keys, len(found))
            answer = self._client.ask(protocol.GET_MANY, self._fields, pack_many(part))
            found.extend(unpack_many(answer.payload))
        return found

    def range(
        self, start: bytes, end: bytes | None, *, is_reversed: bool = False, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` on and before `end` (None: up to the last), with their values, in order, page by page."""
        left = limit
        while left is None or left > 0:
            fields = {**self._fields, "reversed": is_reversed}
            if left is not None:
                fields["limit"] = left
            answer = self._client.ask(protocol.RANGE, fields, pack_many((start, end)))
            page = unpack_many(answer.payload)
            keys, values = page[::2], page[1::2]
            for key, value in zip(keys, values, strict=True):
                assert key is not None
                assert value is not None
                yield key, value
            if not answer.fields["more"] or not keys:
                return
            last = keys[-1]
            assert last is not None
            start, end = (start, last) if is_reversed else (last + b"\0", end)
            left = None if left is None else left - len(keys)


def _take_part(keys: Sequence[bytes], begin: int) -> Sequence[bytes]:
    """The next keys that fit into one request: at least one."""
    part = keys[begin : begin + protocol.KEYS_MAX]
    if sum(map(len, part)) <= _KEY_BYTES:
        return part
    size = 0
    for count, key in enumerate(part):
        size += len(key)
        if size > _KEY_BYTES and count:
            return part[:count]
    return part
