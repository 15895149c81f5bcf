"""An outcome in the making: what one turn of a machine adds up to, step by step."""

from ottla.coordinators.machine import Outcome, Reply, StoredRecord, Ticket, Turn
from ottla.wire.message import Message


class Draft:
    __slots__ = ("_records", "_replies", "turn")

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self._records: list[StoredRecord] = []
        self._replies: list[Reply] = []

    def store(self, record: StoredRecord) -> None:
        self._records.append(record)

    def reply(self, ticket: Ticket | None, response: Message) -> None:
        """None is the ticket of somebody who waits for nothing."""
        if ticket is not None:
            self._replies.append(Reply(ticket, response))

    def outcome(self, *, may_be_refused: bool = False) -> Outcome:
        return Outcome(records=self._records, replies=self._replies, may_be_refused=may_be_refused)
