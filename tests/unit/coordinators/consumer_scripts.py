"""Plays scripts with a consumer group, and writes down what happens.

    a joins topics=t      | [Stable]; a: epoch 2, reads t0 t1 t2 t3
    b joins topics=t      | [Reconciling]; b: epoch 3, reads nothing
    a beats               | a: epoch 2, reads t0 t1
    a beats               | a: epoch 3
    b beats               | [Stable]; b: epoch 3, reads t2 t3

The left column has the actions of clients; the right one has the responses and the group's new state. A client follows
its assignment at once and reports that with its next heartbeat, unless it `holds on` to the partitions that it has to
give up. Clients of the classic protocol use `enters`, `syncs`, `pulses` and `exits`. Topics have one letter, and `t0`
is a partition of t.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.cluster import changes
from ottla.cluster.image import EMPTY, Image
from ottla.config import BrokerConfig
from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.consumer.descriptions import TRANSITIONS, ConsumerState
from ottla.coordinators.consumer.group import ConsumerGroup
from ottla.coordinators.consumer.members import LEAVING, LEAVING_FOR_NOW
from ottla.coordinators.formats import GROUP_FORMAT
from ottla.coordinators.groups.consumer_protocol import read_assignment
from ottla.coordinators.groups.downgrade import Downgrade
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.machine import NOBODY, Caller, Meters, Outcome, StoredRecord, Ticket, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as Assigned
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.schema import encode
from tests.unit.coordinators import scripts


def topic_id(name: str, generation: int = 0) -> bytes:
    return f"{name}{generation}".encode().ljust(16, b".")


def image_of(topics: dict[str, int], version: int = 1, generation: int = 0) -> Image:
    made: list[changes.Change] = []
    for name, partitions in topics.items():
        made.append(changes.CreateTopic(topic_id(name, generation), name))
        made += [
            changes.CreatePartition(topic_id(name, generation), number, (1,), (1,), 1) for number in range(partitions)
        ]
    return EMPTY.replay(version, made)


@dataclass
class Client:
    name: str
    member_id: str = ""
    epoch: int = 0
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    instance: str | None = None
    assignor: str | None = None
    timeout: int = 60_000
    reads: frozenset[tuple[str, int]] = frozenset()
    told: frozenset[tuple[str, int]] = frozenset()
    protocol_name: str | None = None
    lost_an_answer: bool = False


@dataclass
class Stage:
    """One group of the machine, a clock, some clients, topics, and the log."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 4})
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {name.replace("_", "."): str(value) for name, value in self.settings.items()}
        self.config = BrokerConfig.of(
            {
                "group.consumer.assignment.interval.ms": "0",
                "group.initial.rebalance.delay.ms": "0",
                **given,
            }
        )
        self.image = image_of(self.topics)
        self.groups = GroupMachine()
        self.now = 1_000_000
        self.wall_ahead_ms = 10**12
        self.meters = Meters.fresh()
        self.log: list[StoredRecord] = []
        self.clients: dict[str, Client] = {}
        self.waiting: dict[Ticket, Client] = {}
        self.errands: list[Any] = []
        self._tickets = 0
        self._ids_given = 0
        self._told: list[str] = []
        self._state = "Empty"

    # --- turns ---

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups.groups["group"]
        assert isinstance(group, ConsumerGroup)
        return group

    def turn(self, ticket: Ticket = NOBODY) -> Turn:
        return Turn(self.now, self.now + self.wall_ahead_ms, self.image, self.config, self.meters, ticket)

    def run(self, client: Client | None, decide: Any) -> None:
        """Run one turn as the runtime does: decide, apply effects, store and replay records, reply, run errands."""
        ticket = NOBODY
        if client is not None:
            ticket = self._tickets = self._tickets + 1
            self.waiting[ticket] = client
        try:
            outcome: Outcome = decide(self.turn(ticket))
        except KafkaError as error:
            assert client is not None
            del self.waiting[ticket]
            self.refused(client, error.code)
            return
        for effect in outcome.effects:
            effect()
        for record in outcome.records:
            assert GROUP_FORMAT.decode(*GROUP_FORMAT.encode(record)) == record
            self.log.append(record)
            self.groups.replay(record, self.now, None)
        _ = self.groups.wake_at  # which the runtime reads after every turn
        self._see_state()
        for reply in outcome.replies:
            self._answer(self.waiting.pop(reply.ticket), reply.response)
        for errand in outcome.errands:
            if isinstance(errand, Downgrade):
                self.run(None, lambda turn, errand=errand: self.groups.begin_classic_group(errand, turn))
            else:
                self.errands.append(errand)

    def search(self) -> None:
        """Run the topic searches that were requested as errands."""
        for errand in self.errands:
            found = errand.run()
            self.run(
                None, lambda turn, errand=errand, found=found: self.groups.store_found_topics("group", found, turn)
            )
        self.errands.clear()

    def _see_state(self) -> None:
        group = self.groups.groups.get("group")
        before, state = self._state, "Empty" if group is None else group.state_name
        is_classic = isinstance(group, ClassicGroup) and not group.is_empty
        self._state = f"classic {state}" if is_classic else state
        if before == self._state:
            return
        self.tell(f"[{self._state}]")
        if isinstance(group, ConsumerGroup) and not before.startswith("classic"):
            assert ConsumerState(state) in TRANSITIONS[ConsumerState(before)], f"{before} to {state}"

    def refused(self, client: Client, code: ErrorCode) -> None:
        """A fenced client gives up its partitions."""
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.reads = client.told = frozenset()
            client.epoch = 0
        self.tell(f"{client.name}: {code.name}")

    def _answer(self, client: Client, response: Any) -> None:
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            self._heard(client, response)
        elif isinstance(response, LeaveGroupResponse):
            self.tell(f"{client.name}: " + " ".join(ErrorCode(each.error_code).name for each in response.members))
        elif isinstance(response, JoinGroupResponse) and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
            self.tell(f"{client.name}: MEMBER_ID_REQUIRED")
        elif response.error_code:
            self.refused(client, ErrorCode(response.error_code))
        elif isinstance(response, JoinGroupResponse):
            client.member_id, client.epoch = response.member_id, response.generation_id
            client.protocol_name = response.protocol_name
            leads = f", leads {len(response.members)}" if response.members else ""
            self.tell(f"{client.name}: generation {response.generation_id}{leads}")
        elif isinstance(response, SyncGroupResponse):
            assignment = read_assignment(response.assignment)
            client.reads = client.told = frozenset(
                (topic.topic, number) for topic in assignment.assigned_partitions for number in topic.partitions
            )
            self.tell(f"{client.name}: reads {shown(client.reads)}")
        else:
            assert isinstance(response, HeartbeatResponse)
            self.tell(f"{client.name}: is alive")

    def _heard(self, client: Client, response: ConsumerGroupHeartbeatResponse) -> None:
        text = f"{client.name}: epoch {response.member_epoch}"
        client.epoch = response.member_epoch
        if response.assignment is not None:
            names = {topic.id: topic.name for topic in self.image.topics()}
            client.told = frozenset(
                (names[row.topic_id], number)
                for row in response.assignment.topic_partitions
                for number in row.partitions
                if row.topic_id in names
            )
            client.reads |= client.told
            text += f", reads {shown(client.told)}"
        self.tell(text)

    def tell(self, event: str) -> None:
        self._told.append(event)

    def told(self) -> list[str]:
        told, self._told = self._told, []
        return told

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name, name))

    # --- clients of the consumer protocol ---

    def joins(self, client: Client, **words: str) -> None:
        """Join with the fields of the last time, except for these."""
        if "topics" in words:
            client.topics = _names(words["topics"])
        client.pattern = words.get("pattern", client.pattern)
        client.instance = words.get("instance", client.instance)
        client.assignor = words.get("assignor", client.assignor)
        client.timeout = int(words.get("timeout", client.timeout))
        client.member_id = words.get("id", client.member_id)
        client.reads = client.told = frozenset()
        client.epoch = 0
        client.lost_an_answer = True
        self._beat(client)

    def beats(self, client: Client, **words: str) -> None:
        client.reads = client.told
        self._said(client, words)

    def holds(self, client: Client, on: str = "on", **words: str) -> None:
        """A heartbeat of a client that still reads the partitions that it has to give up."""
        self._said(client, words)

    def _said(self, client: Client, words: dict[str, str]) -> None:
        names = _names(words["topics"]) if "topics" in words else None
        client.topics = names or client.topics
        client.pattern = words.get("pattern", client.pattern)
        epoch = int(words["epoch"]) if "epoch" in words else client.epoch
        self._beat(client, epoch=epoch, topics=names, pattern=words.get("pattern"))

    def _beat(
        self,
        client: Client,
        *,
        epoch: int | None = None,
        topics: tuple[str, ...] | None = None,
        pattern: str | None = None,
    ) -> None:
        """Send a heartbeat. After a lost response it carries all fields."""
        full, client.lost_an_answer = client.lost_an_answer, False
        topics, pattern = (client.topics, client.pattern) if full else (topics, pattern)
        request = ConsumerGroupHeartbeatRequest(
            group_id="group",
            member_id=client.member_id,
            member_epoch=client.epoch if epoch is None else epoch,
            instance_id=client.instance,
            rebalance_timeout_ms=client.timeout if full else -1,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=pattern,
            server_assignor=client.assignor if full else None,
            topic_partitions=self._owned(client.reads),
        )
        caller = Caller(client.name, "/127.0.0.1")
        self.run(client, lambda turn: self.groups.consumer_group_heartbeat(request, caller, turn))

    def _owned(self, reads: frozenset[tuple[str, int]]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        rows: dict[bytes, list[int]] = {}
        for name, number in sorted(reads):
            topic = self.image.topic(name)
            rows.setdefault(topic.id if topic is not None else topic_id(name), []).append(number)
        return [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=id, partitions=rows[id]) for id in rows]

    def pings(self, client: Client) -> None:
        """A heartbeat without optional fields, as most are."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="group", member_id=client.member_id, member_epoch=client.epoch, instance_id=client.instance
        )
        caller = Caller(client.name, "/127.0.0.1")
        self.run(client, lambda turn: self.groups.consumer_group_heartbeat(request, caller, turn))

    def leaves(self, client: Client, **words: str) -> None:
        client.reads = client.told = frozenset()
        epoch = LEAVING_FOR_NOW if words else LEAVING
        self._beat(client, epoch=epoch)
        client.epoch = 0

    def commits(self, client: Client, **words: str) -> None:
        """Commit offsets of some partitions with some epoch."""
        epoch = int(words.get("epoch", client.epoch))
        places = [(each[0], int(each[1:])) for each in words.get("places", "").split(",") if each]

        def decide(turn: Turn) -> Outcome:
            group = self.groups.groups["group"]
            check = group.check_commit(client.member_id, client.instance, epoch, turn, api_version=9)
            for name, number in places:
                if check is not None:
                    check(topic_id(name), number)
            del self.waiting[turn.ticket]
            self.tell(f"{client.name}: commits")
            return Outcome()

        self.run(client, decide)

    # --- clients of the classic protocol ---

    def enters(self, client: Client, **words: str) -> None:
        """JoinGroup. With `owns` the client is cooperative and keeps its partitions; without it is eager."""
        if "topics" in words:
            client.topics = _names(words["topics"])
        client.instance = words.get("instance", client.instance)
        client.timeout = int(words.get("timeout", client.timeout))
        if client.member_id == client.name or words.get("id") == "none":
            client.member_id = ""
        owns = client.reads if "owns" in words else frozenset()
        by_topic: dict[str, list[int]] = {}
        for name, number in sorted(owns):
            by_topic.setdefault(name, []).append(number)
        subscription = ConsumerProtocolSubscription(
            topics=list(client.topics or ()),
            owned_partitions=[TopicPartition(topic=name, partitions=by_topic[name]) for name in by_topic],
        )
        metadata = (1).to_bytes(2, "big") + encode(ConsumerProtocolSubscription, 1, subscription)
        names = words.get("protocols", "range").split(",")
        request = JoinGroupRequest(
            group_id="group",
            member_id=client.member_id,
            group_instance_id=client.instance,
            session_timeout_ms=int(words.get("session", 10_000)),
            rebalance_timeout_ms=client.timeout,
            protocol_type=words.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names],
        )
        client.reads = owns
        self._ids_given += 1
        caller, fresh = Caller(client.name, "/127.0.0.1"), f"{client.name}-{self._ids_given}"
        join = self.groups.join_group
        self.run(client, lambda turn: join(request, caller, turn, version=9, fresh_member_id=fresh))

    def syncs(self, client: Client, **assignments: str) -> None:
        """SyncGroup. The leader of a classic group sends the assignments."""
        given = []
        for name, places in assignments.items():
            given.append(
                SyncGroupRequestAssignment(
                    member_id=self.client(name).member_id, assignment=classic_assignment(places.split(","))
                )
            )
        request = SyncGroupRequest(
            group_id="group",
            generation_id=client.epoch,
            member_id=client.member_id,
            group_instance_id=client.instance,
            protocol_type="consumer",
            protocol_name=client.protocol_name,
            assignments=given,
        )
        self.run(client, lambda turn: self.groups.sync_group(request, turn))

    def pulses(self, client: Client) -> None:
        request = HeartbeatRequest(
            group_id="group",
            generation_id=client.epoch,
            member_id=client.member_id,
            group_instance_id=client.instance,
        )
        self.run(client, lambda turn: self.groups.heartbeat(request, turn))

    def exits(self, client: Client) -> None:
        client.reads = client.told = frozenset()
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
        request = LeaveGroupRequest(group_id="group", members=[identity])
        self.run(client, lambda turn: self.groups.leave_group(request, turn))

    # --- what happens to the group ---

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and wake the machine whenever it wants to be woken."""
        end = self.now + duration_ms
        while (wake_at := self.groups.wake_at) is not None and wake_at <= end:
            self.now = max(self.now, wake_at)
            self.run(None, self.groups.wake)
        self.now = end

    def change_topics(self, topics: dict[str, int], generation: int = 0) -> None:
        self.topics = topics
        self.image = image_of(topics, self.image.version + 1, generation)

    def copy_from_log(self, log: Sequence[StoredRecord] | None = None) -> GroupMachine:
        copy = GroupMachine()
        for record in self.log if log is None else log:
            copy.replay(record, self.now, None)
        return copy

    def reload(self) -> None:
        """The coordinator dies with all waiting requests, and another one loads the log."""
        self.waiting.clear()
        self.errands.clear()
        self.groups = self.copy_from_log()
        self.run(None, self.groups.finish_loading)

    # --- scripts ---

    def play(self, script: str) -> "Stage":
        scripts.play(script, self._act, self.told)
        return self

    def _act(self, action: str) -> None:
        if passed := re.fullmatch(r"(\d+) ms pass", action):
            self.pass_ms(int(passed[1]))
        elif action == "reload":
            self.reload()
        elif action == "search":
            self.search()
        elif action.startswith("topics "):
            self.change_topics({each[0]: int(each[2:]) for each in action.split()[1:]})
        else:
            name, verb, *words = action.split()
            given = {word.split("=")[0]: word.split("=", 1)[-1] for word in words}
            getattr(self, verb)(self.client(name), **given)


def classic_assignment(places: list[str]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place[0], []).append(int(place[1:]))
    message = ConsumerProtocolAssignment(
        assigned_partitions=[Assigned(topic=name, partitions=by_topic[name]) for name in by_topic]
    )
    return (1).to_bytes(2, "big") + encode(ConsumerProtocolAssignment, 1, message)


def shown(places: frozenset[tuple[str, int]]) -> str:
    return " ".join(f"{name}{number}" for name, number in sorted(places)) or "nothing"


def _names(words: str) -> tuple[str, ...]:
    return tuple(word for word in words.split(",") if word)


def play(script: str, topics: dict[str, int] | None = None, **settings: Any) -> Stage:
    return Stage(topics or {"t": 4}, settings).play(script)
