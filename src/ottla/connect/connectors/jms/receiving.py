"""What a source has received and not yet acknowledged.

A message is acknowledged when it is committed to the topic, and the committed offset has the ids of the messages that
may not be acknowledged yet. Whatever dies between the two, the broker delivers those messages again, and they are
recognised by their ids: acknowledged, and not written a second time.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Set
from hashlib import blake2b
from typing import Any, Final

from ottla.connect.connectors.jms.session import Frame, Session
from ottla.connect.errors import RetriableError

IDS: Final = "ids"
"""In an offset: short forms of ids, one after the other."""
_ID_LENGTH: Final = 16
UNSETTLED_MAX: Final = 10_000
"""Ids that are remembered of messages whose acknowledgement may have been lost. The oldest are forgotten."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""A batch ends once its messages have so many bytes: it travels to its task as JSON."""


def shorten_id(message_id: str) -> str:
    """An offset keeps 16 characters of a message's id: two ids that share them are beyond all chance."""
    return base64.b64encode(blake2b(message_id.encode(), digest_size=12).digest()).decode()


def read_ids(offset: Mapping[str, Any] | None) -> list[str]:
    text = "" if offset is None else str(offset.get(IDS, ""))
    return [text[at : at + _ID_LENGTH] for at in range(0, len(text), _ID_LENGTH)]


class Receiver:
    """One consumer of a destination. Used by the driver."""

    def __init__(self, connect: Callable[[], Session], batch_size: int, unsettled: Iterable[str]) -> None:
        """`unsettled` are the ids of the committed offset: it is not known whether they were acknowledged."""
        self._connect = connect
        self._batch_size = batch_size
        self._session: Session | None = None
        self._batch: list[Frame] = []
        """Received, and not known to be acknowledged."""
        self._unsettled: dict[str, None] = dict.fromkeys(unsettled)

    def collect(self, committed: Set[str]) -> list[Frame]:
        """The messages that are to be written now: the same ones until they are committed. Empty if there are none.

        `committed` are the ids in all committed offsets.
        """
        if self._session is None:
            self._batch = []  # what an earlier session has received comes again
            self._session = self._connect()
        while True:
            if not self._batch:
                self._batch = self._guard(lambda session: session.receive(self._batch_size, BATCH_BYTES))
            fresh = self._find_fresh(committed)
            if fresh or not self._batch:
                return fresh
            self.settle(committed)

    def list_ids(self, frames: Iterable[Frame]) -> str:
        """The offset after these messages."""
        ids = [*self._unsettled, *(shorten_id(each.id) for each in frames)]
        return "".join(ids[-(UNSETTLED_MAX + self._batch_size) :])

    def settle(self, committed: Set[str]) -> None:
        """Acknowledge what was received, if all of it is committed."""
        if not self._batch or self._find_fresh(committed):
            return
        ids = [shorten_id(each.id) for each in self._batch]
        self._unsettled |= dict.fromkeys(ids)
        if self._session is None:
            return
        self._guard(lambda session: session.acknowledge(self._batch[-1]))
        for each in ids:
            self._unsettled.pop(each, None)
        self._batch = []

    def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.close()

    def _find_fresh(self, committed: Set[str]) -> list[Frame]:
        return [each for each in self._batch if shorten_id(each.id) not in committed]

    def _guard(self, operation: Callable[[Session], Any]) -> Any:
        """A session that fails is closed, and the next call makes a new one."""
        assert self._session is not None
        try:
            return operation(self._session)
        except RetriableError:
            self.close()
            raise
