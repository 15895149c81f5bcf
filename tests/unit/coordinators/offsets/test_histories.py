"""Committed offsets compared with a naive model, after each of many random commits, transactions, deletions and
reloads."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.coordinators.machine import ProducerIdentity
from ottla.errors import KafkaError
from tests.unit.coordinators.offset_desk import Desk

TOPICS = ("t", "u")
PRODUCERS = (ProducerIdentity(7, 0), ProducerIdentity(8, 2))

offsets = st.integers(0, 99)
topics = st.sampled_from(TOPICS)
producers = st.sampled_from(PRODUCERS)


class Event(NamedTuple):
    what: str
    topic: str = ""
    offset: int = 0
    producer: ProducerIdentity | None = None
    committed: bool = False


class NaiveOffsets:
    """A list of all events. Every question is answered by reading it from the beginning."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def offset(self, topic: str) -> int:
        found = -1
        for place, event in enumerate(self.events):
            if event.topic != topic:
                continue
            if event.what == "delete":
                found = -1
            elif event.what == "commit" or (event.what == "in transaction" and self._end(place) is True):
                found = event.offset
        return found

    def is_pending(self, topic: str) -> bool:
        places = [place for place, event in enumerate(self.events) if event.topic == topic]
        deleted = max((place for place in places if self.events[place].what == "delete"), default=-1)
        return any(
            self.events[place].what == "in transaction" and self._end(place) is None
            for place in places
            if place > deleted
        )

    def _end(self, place: int) -> bool | None:
        """How the transaction of this event ended; None if it is open. A deletion of the offset also removes pending
        ones."""
        for event in self.events[place + 1 :]:
            if event.what == "end" and event.producer == self.events[place].producer:
                return event.committed
            if event.what == "delete" and event.topic == self.events[place].topic:
                return False
        return None


class OffsetHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(*TOPICS)
        self.naive = NaiveOffsets()

    @rule(offset=offsets, topic=topics)
    def commit(self, offset: int, topic: str) -> None:
        assert self.desk.commit(offset, topic=topic) == 0
        self.naive.events.append(Event("commit", topic, offset))

    @rule(offset=offsets, topic=topics, producer=producers)
    def commit_in_transaction(self, offset: int, topic: str, producer: ProducerIdentity) -> None:
        assert self.desk.commit_in_transaction(offset, producer, topic=topic) == 0
        self.naive.events.append(Event("in transaction", topic, offset, producer))

    @rule(producer=producers, committed=st.booleans())
    def end_transaction(self, producer: ProducerIdentity, committed: bool) -> None:
        self.desk.end_transaction(producer, committed=committed)
        self.naive.events.append(Event("end", producer=producer, committed=committed))

    @rule(topic=topics)
    def delete_offset(self, topic: str) -> None:
        try:
            self.desk.delete_offsets(topic)
        except KafkaError:
            assert not self.desk.groups.groups
        self.naive.events.append(Event("delete", topic))

    @rule()
    def delete_group(self) -> None:
        try:
            self.desk.delete_group()
        except KafkaError:
            assert not self.desk.groups.groups
        self.naive.events += [Event("delete", topic) for topic in TOPICS]

    @rule()
    def reload(self) -> None:
        self.desk.reload()

    @invariant()
    def readers_get_what_the_model_says(self) -> None:
        for topic in TOPICS:
            offset = self.naive.offset(topic)
            assert self.desk.offset(topic) == offset
            stable = "UNSTABLE_OFFSET_COMMIT" if self.naive.is_pending(topic) else offset
            assert self.desk.offset(topic, stable=True) == stable


TestOffsetHistories = OffsetHistories.TestCase
TestOffsetHistories.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
