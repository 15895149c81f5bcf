"""Plays scripts with a classic group, and writes down what happens.

    a joins               | a: MEMBER_ID_REQUIRED
    a joins               | [PreparingRebalance]
    3000 ms pass          | [CompletingRebalance]; a: generation 1, leads a
    a syncs a=p0          | stores generation 1 a=p0; [Stable]; a: gets p0

The left column has the actions of clients; the right one has the responses, the stored records and the group's new
state. Clients remember their member id and generation, as real ones do. A word `key=value` after `joins` changes the
request, see `Joining`.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.cluster.image import EMPTY
from ottla.config import BrokerConfig
from ottla.coordinators.classic.group import ClassicGroup
from ottla.coordinators.classic.states import TRANSITIONS, ClassicState
from ottla.coordinators.formats import GROUP_FORMAT, GroupMetadataValue
from ottla.coordinators.machine import NOBODY, Caller, Meters, Outcome, StoredRecord, Ticket, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.schema import encode
from tests.unit.coordinators import scripts


@dataclass
class Joining:
    """The fields of a JoinGroup request."""

    protocols: str = "range"
    topics: str = "t"
    type: str = "consumer"
    instance: str | None = None
    session: int = 10_000
    rebalance: int = 60_000
    version: int = 9
    id: str | None = None
    """A member id other than the client's own; `none` for none."""

    def request(self, member_id: str) -> JoinGroupRequest:
        subscription = encode(ConsumerProtocolSubscription, 0, ConsumerProtocolSubscription(topics=[self.topics]))
        return JoinGroupRequest(
            group_id="group",
            session_timeout_ms=self.session,
            rebalance_timeout_ms=self.rebalance,
            member_id=member_id,
            group_instance_id=self.instance,
            protocol_type=self.type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=bytes(2) + subscription)
                for name in self.protocols.split(",")
                if name
            ],
        )


@dataclass
class Client:
    name: str
    joining: Joining = field(default_factory=Joining)
    member_id: str = ""
    generation: int = -1


class Stage:
    """One group, a clock, some clients, and the log."""

    def __init__(self, **settings: int) -> None:
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = BrokerConfig.of({"group.initial.rebalance.delay.ms": "3000", **given})
        self.group = ClassicGroup("group")
        self.meters = Meters.fresh()
        self.now = 1_000_000
        self.log: list[StoredRecord] = []
        self.clients: dict[str, Client] = {}
        self.waiting: dict[Ticket, Client] = {}
        self._tickets = 0
        self.ids_given = 0
        self._told: list[str] = []
        self._state = self.group.state

    # --- turns ---

    def run(self, client: Client | None, decide: Any) -> None:
        """Run one turn as the runtime does: decide, apply effects, store and replay records, reply."""
        ticket = NOBODY
        if client is not None:
            ticket = self._tickets = self._tickets + 1
            self.waiting[ticket] = client
        try:
            outcome: Outcome = decide(Turn(self.now, self.now + 10**12, EMPTY, self.config, self.meters, ticket))
        except KafkaError as error:
            assert client is not None
            del self.waiting[ticket]
            self.tell(f"{client.name}: {error.code.name}")
            return
        self._see_state()
        for effect in outcome.effects:
            effect()
        for record in outcome.records:
            self._store(record)
        self._see_state()
        for reply in outcome.replies:
            self._answer(self.waiting.pop(reply.ticket), reply.response)

    def _store(self, record: StoredRecord) -> None:
        stored = GROUP_FORMAT.decode(*GROUP_FORMAT.encode(record))
        assert stored == record
        self.log.append(record)
        assert isinstance(record.value, GroupMetadataValue)
        members = [f"{self.name_of(each.member_id)}={each.assignment.decode()}" for each in record.value.members]
        self.tell(" ".join((f"stores generation {record.value.generation}", *(members or ["empty"]))))
        self.group.replay_metadata(record.value)

    def _see_state(self) -> None:
        before, self._state = self._state, self.group.state
        if before is not self._state:
            through = (
                TRANSITIONS[ClassicState.PREPARING_REBALANCE]
                if ClassicState.PREPARING_REBALANCE in TRANSITIONS[before]
                else ()
            )
            assert self._state in TRANSITIONS[before] or self._state in through, f"{before} to {self._state}"
            self.tell(f"[{self._state}]")

    def _answer(self, client: Client, response: Any) -> None:
        name = client.name
        if isinstance(response, JoinGroupResponse) and response.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = response.member_id
        if not isinstance(response, LeaveGroupResponse) and response.error_code:
            self.tell(f"{name}: {ErrorCode(response.error_code).name}")
        elif isinstance(response, JoinGroupResponse):
            client.generation = response.generation_id
            members = " ".join(self.name_of(each.member_id) for each in response.members)
            leads = f", leads {members}" if members else ""
            skips = ", assigns nothing" if response.skip_assignment else ""
            chosen = "" if response.protocol_name == "range" else f" with {response.protocol_name}"
            self.tell(f"{name}: generation {response.generation_id}{chosen}{leads}{skips}")
        elif isinstance(response, SyncGroupResponse):
            self.tell(f"{name}: gets {response.assignment.decode() or 'nothing'}")
        elif isinstance(response, HeartbeatResponse):
            self.tell(f"{name}: is alive")
        elif isinstance(response, LeaveGroupResponse):
            self.tell(f"{name}: " + " ".join(ErrorCode(each.error_code).name for each in response.members))

    def tell(self, event: str) -> None:
        self._told.append(event)

    def told(self) -> list[str]:
        told, self._told = self._told, []
        return told

    def name_of(self, member_id: str) -> str:
        return member_id.split("-")[0]

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # --- what clients do ---

    def joins(self, client: Client, **words: Any) -> None:
        given: dict[str, Any] = {word: type(getattr(Joining(), word) or "")(value) for word, value in words.items()}
        given.setdefault("id", None)
        client.joining = joining = replace(client.joining, **given)
        member_id = {None: client.member_id, "none": ""}.get(joining.id, joining.id) or ""
        self.ids_given += 1
        caller, fresh = Caller(client.name, "/127.0.0.1"), f"{client.name}-{self.ids_given}"
        request, version = joining.request(member_id), joining.version
        join = self.group.join
        self.run(client, lambda turn: join(request, caller, turn, version=version, fresh_member_id=fresh))

    def restarts(self, client: Client) -> None:
        """The client forgets its member id and generation; the group does not know of it."""
        client.member_id, client.generation = "", -1

    def syncs(self, client: Client, **assignment: str) -> None:
        ids = {name: client.member_id for name, client in self.clients.items()}
        request = SyncGroupRequest(
            group_id="group",
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.joining.instance,
            assignments=[
                SyncGroupRequestAssignment(member_id=ids[name], assignment=given.encode())
                for name, given in assignment.items()
            ],
        )
        self.run(client, lambda turn: self.group.sync(request, turn))

    def beats(self, client: Client) -> None:
        request = HeartbeatRequest(
            group_id="group",
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.joining.instance,
        )
        self.run(client, lambda turn: self.group.heartbeat(request, turn))

    def leaves(self, client: Client) -> None:
        self.remove(client, MemberIdentity(member_id=client.member_id, group_instance_id=client.joining.instance))

    def remove(self, client: Client, *members: MemberIdentity) -> None:
        request = LeaveGroupRequest(group_id="group", members=list(members))
        self.run(client, lambda turn: self.group.leave(request, turn))

    def commits(self, client: Client, generation: str = "") -> None:
        number = int(generation) if generation else client.generation

        def decide(turn: Turn) -> Outcome:
            identity = client.member_id, client.joining.instance, number
            self.group.check_commit(*identity, turn, api_version=9)
            self.tell(f"{client.name}: commits")
            del self.waiting[turn.ticket]
            return Outcome()

        self.run(client, decide)

    def removes(self, client: Client, instances: str) -> None:
        """An administrator removes static members."""
        self.remove(client, *(MemberIdentity(group_instance_id=each) for each in instances.split(",")))

    # --- what happens to the group ---

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and wake the group whenever it wants to be woken."""
        end = self.now + duration_ms
        while (wake_at := self.group.wake_at) is not None and wake_at <= end:
            self.now = max(self.now, wake_at)
            self.run(None, self.group.wake)
        self.now = end

    def reload(self, **settings: int) -> None:
        """The coordinator dies with all waiting requests, and another one loads the log."""
        if settings:
            given = {name.replace("_", "."): str(value) for name, value in settings.items()}
            self.config = self.config.with_changes(given)
        self.waiting.clear()
        self.group = self.copy_from_log()
        self._state = self.group.state
        self.tell(f"[{self._state}]")
        self.run(None, self.group.finish_loading)

    def copy_from_log(self) -> ClassicGroup:
        copy = ClassicGroup("group")
        for record in self.log:
            assert isinstance(record.value, GroupMetadataValue)
            copy.replay_metadata(record.value)
        return copy

    # --- scripts ---

    def play(self, script: str) -> "Stage":
        scripts.play(script, self._act, self.told)
        return self

    def _act(self, action: str) -> None:
        if passed := re.fullmatch(r"(\d+) ms pass", action):
            self.pass_ms(int(passed[1]))
            return
        if reloaded := re.fullmatch(r"reload(?: with a limit of (\d+))?", action):
            self.reload(**({"group_max_size": int(reloaded[1])} if reloaded[1] else {}))
            return
        name, verb, *words = action.split()
        if verb == "removes":
            self.removes(self.client(name), words[0])
        else:
            getattr(self, verb)(self.client(name), **dict(word.split("=", 1) for word in words))


def play(script: str, **settings: int) -> Stage:
    return Stage(**settings).play(script)
