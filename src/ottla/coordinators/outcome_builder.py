"""Builds the outcome of a turn that decides in several steps."""

from collections.abc import Callable
from typing import Any

from ottla.coordinators.machine import Outcome, Reply, StoredRecord, Ticket, Turn
from ottla.wire.message import Message


class OutcomeBuilder:
    __slots__ = ("_errands", "_replies", "effects", "may_be_refused", "records", "turn")

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.records: list[StoredRecord] = []
        self.effects: list[Callable[[], None]] = []
        self.may_be_refused = False
        self._replies: list[Reply] = []
        self._errands: list[Any] = []

    def store(self, *records: StoredRecord) -> None:
        self.records.extend(records)

    def reply(self, ticket: Ticket | None, response: Message) -> None:
        """Reply to a ticket; None: nobody waits. An effect may call this too: replies are sent after effects."""
        if ticket is not None:
            self._replies.append(Reply(ticket, response))

    def request(self, errand: Any) -> None:
        """Ask for an errand, to be run once the records are committed."""
        self._errands.append(errand)

    def build(self) -> Outcome:
        return Outcome(
            self.records,
            self._replies,
            may_be_refused=self.may_be_refused,
            errands=self._errands,
            effects=self.effects,
        )
