"""Random histories of a consumer group, compared with a simple record of who reads what, by what clients were told.

Whatever happens, no member starts to read a partition that a live member still reads. A copy loaded from the log,
compacted or not, equals the group. When the group becomes quiet, every partition has one reader that subscribes to it,
and no member has two partitions more than another.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinators.consumer.group import ConsumerGroup
from ottla.coordinators.formats import GROUP_FORMAT
from ottla.coordinators.machine import StoredRecord
from tests.unit.coordinators.consumer_scripts import Client, Stage

NAMES = ("a", "b", "c", "d")
SUBSCRIPTIONS = ("t", "t,u", "u", "t,u,v")

names = st.sampled_from(NAMES)


class Histories(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from((0, 1000)))
    def begin(self, interval: int) -> None:
        self.stage = Stage({"t": 3, "u": 2}, {"group_consumer_assignment_interval_ms": interval})
        self.restarts = 0

    def client(self, name: str) -> Client:
        return self.stage.client(name)

    def is_member(self, client: Client) -> bool:
        group = self.stage.groups.groups.get("group")
        return isinstance(group, ConsumerGroup) and client.member_id in group.state.members

    @rule(name=names, topics=st.sampled_from(SUBSCRIPTIONS), assignor=st.sampled_from((None, "uniform", "range")))
    def join(self, name: str, topics: str, assignor: str | None) -> None:
        client = self.client(name)
        client.assignor = assignor
        self.stage.joins(client, topics=topics)

    @rule(name=names)
    def join_by_pattern(self, name: str) -> None:
        self.stage.joins(self.client(name), topics="", pattern="[tv]")
        self.client(name).pattern = None

    @rule(name=names)
    def join_as_static(self, name: str) -> None:
        """Two clients share each instance id, and every start has a new member id."""
        self.restarts += 1
        client = self.client(name)
        client.instance = f"i{NAMES.index(name) // 2}"
        self.stage.joins(client, topics="t,u", id=f"{name}-{self.restarts}")

    @rule(name=names)
    def beat(self, name: str) -> None:
        self.stage.beats(self.client(name))

    @rule(name=names)
    def hold_on(self, name: str) -> None:
        self.stage.holds(self.client(name))

    @rule(name=names)
    def ping(self, name: str) -> None:
        self.stage.pings(self.client(name))

    @rule(name=names, topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, name: str, topics: str) -> None:
        client = self.client(name)
        if client.epoch > 0:
            self.stage.beats(client, topics=topics)

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.stage.leaves(self.client(name))

    @rule(name=names)
    def leave_for_now(self, name: str) -> None:
        if self.client(name).instance is not None:
            self.stage.leaves(self.client(name), now="now")

    @rule(name=names)
    def lose_an_answer(self, name: str) -> None:
        """The coordinator gets the request and the client does not get the answer, so it sends all fields again."""
        client = self.client(name)
        if client.epoch > 0:
            client.reads = client.told
            before = client.epoch, client.told, client.reads
            self.stage.beats(client)
            client.epoch, client.told, client.reads = before
            client.lost_an_answer = True

    @rule(name=names)
    def crash(self, name: str) -> None:
        """The client disappears, and comes back with another member id."""
        client = self.client(name)
        self.restarts += 1
        client.member_id, client.instance = f"{name}-{self.restarts}", None
        client.reads = client.told = frozenset()
        client.epoch = 0

    @rule(seconds=st.sampled_from((1, 10, 30, 50)))
    def wait(self, seconds: int) -> None:
        self.stage.pass_ms(seconds * 1000)

    @rule(topics=st.sampled_from(({"t": 3, "u": 2}, {"t": 4, "u": 2}, {"t": 3, "u": 2, "v": 2}, {"u": 2})))
    def change_topics(self, topics: dict[str, int]) -> None:
        self.stage.change_topics(topics)

    @rule()
    def reload(self) -> None:
        self.stage.reload()

    @invariant()
    def nobody_reads_what_a_live_member_reads(self) -> None:
        if not hasattr(self, "stage"):
            return
        readers: dict[tuple[str, int], str] = {}
        for client in self.stage.clients.values():
            if self.is_member(client):
                for place in client.reads:
                    if place[0] in self.stage.topics:
                        other = readers.setdefault(place, client.name)
                        assert other == client.name, f"{place} is read by {other} and {client.name}"

    @rule(cut=st.floats(0, 1))
    def compare_with_the_log(self, cut: float) -> None:
        """Compact the log up to some position, so that only the last record of each key is left."""
        stage = self.stage
        if "group" not in stage.groups.groups:
            return
        end = int(cut * len(stage.log))
        copy = stage.copy_from_log(compacted(stage.log[:end]) + stage.log[end:]).groups["group"]
        assert isinstance(copy, ConsumerGroup)
        assert copy.state == stage.group.state

    def teardown(self) -> None:
        """All live clients follow the protocol: the group becomes stable, and reads everything evenly."""
        if not hasattr(self, "stage") or "group" not in self.stage.groups.groups:
            return
        stage = self.stage
        for name in NAMES:
            if self.client(name).epoch == 0:
                self.crash(name)
                stage.joins(self.client(name), topics="t,u")
        for _ in range(12):
            stage.pass_ms(5000)
            for name in NAMES:
                self.settle(self.client(name))
        assert stage.group.state_name == "Stable"
        wanted = {topic for client in stage.clients.values() for topic in subscribed(stage, client)}
        everything = {(topic, number) for topic in wanted for number in range(stage.topics.get(topic, 0))}
        reading = [place for client in stage.clients.values() for place in client.reads]
        assert sorted(reading) == sorted(everything)
        for client in stage.clients.values():
            assert {topic for topic, _ in client.reads} <= subscribed(stage, client)
        if len({frozenset(subscribed(stage, client)) for client in stage.clients.values()}) == 1:
            assert stage.group.describe(stage.turn()).assignor_name == "range" or is_even(stage)
        self.compare_with_the_log(0.5)
        self.compare_with_the_log(1)
        log = len(stage.log)
        for name in NAMES:
            stage.beats(self.client(name))
        assert len(stage.log) == log, "a quiet group writes nothing"

    def settle(self, client: Client) -> None:
        """Let a client that was fenced join again with a new member id."""
        self.stage.beats(client)
        if not self.is_member(client) or client.epoch <= 0:
            self.crash(client.name)
            self.stage.joins(client, topics="t,u")


def compacted(log: list[StoredRecord]) -> list[StoredRecord]:
    last: dict[bytes, StoredRecord] = {}
    for record in log:
        key = GROUP_FORMAT.encode(record)[0]
        last.pop(key, None)
        last[key] = record
    return list(last.values())


def subscribed(stage: Stage, client: Client) -> set[str]:
    member = stage.group.state.members[client.member_id]
    names = set(member.topic_names)
    if member.topic_pattern:
        names |= {"t", "v"}
    return names & set(stage.topics)


def is_even(stage: Stage) -> bool:
    counts = [len(client.reads) for client in stage.clients.values()]
    return max(counts) - min(counts) <= 1


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_histories = Histories.TestCase
