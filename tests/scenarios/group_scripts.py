"""Plays scripts of classic groups against a broker, over sockets: each client has a connection of its own.

What clients do is written as in `tests/unit/coordinators/classic_scripts`, which plays against a group alone:

    a joins protocols=range,sticky
    a syncs a=p0 b=p1
    a beats, a leaves, a commits, a restarts, x removes i1,i2
    a joins ...                    does not wait for the answer
    wait for a b                   waits until these clients have their answers
    3000 ms pass
"""

import re
import selectors
import time
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from ottla.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.unit.coordinators.classic_scripts import Joining

AT_ONCE_S = 0.1
"""How long to wait for the effects of a request that is itself not answered yet, on a machine that is not busy."""
TOGETHER_S = 0.03
"""Answers to several clients at once arrive within this time, on a machine that is not busy."""


class Member:
    """One client: its connection, its state, and the request that is not answered yet."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self.name = name
        self.connection = RawClient(*address, client_id=name, timeout_s=PATIENCE_S)
        self.joining = Joining()
        self.member_id = ""
        self.generation = -1
        self.protocol: str | None = None
        self.asked: tuple[Message, int] | None = None

    def ask(self, request: Message, version: int) -> None:
        assert self.asked is None, f"{self.name} still waits"
        self.connection.send_request(request, version)
        self.asked = (request, version)

    def answer(self) -> Any:
        assert self.asked is not None
        request, version = self.asked
        self.asked = None
        return self.connection.read_response(request, version)


class GroupPlayer:
    def __init__(self, address: tuple[str, int], group: str, topic: str, slowness: float = 1) -> None:
        self.group = group
        self._slowness = slowness
        self.topic = topic
        self._address = address
        self._members: dict[str, Member] = {}
        self._admin = RawClient(*address, timeout_s=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for member in self._members.values():
            member.connection.close()
        self._admin.close()

    def play(self, script: str) -> list[str]:
        """Play a script. Returns every line with the answers that came, and the state of the group after it."""
        transcript = []
        for line in script.strip().splitlines():
            action = " ".join(line.split())
            events = self.act(action)
            transcript.append(f"{action} | {'; '.join([*events, self.state()])}")
        return transcript

    def act(self, action: str) -> list[str]:
        if passed := re.fullmatch(r"(\d+) ms pass", action):
            return self.gather(int(passed[1]) / 1000)
        if waited := re.fullmatch(r"wait for (.+)", action):
            return self.gather(PATIENCE_S, waited[1].split())
        name, verb, *words = action.removesuffix("...").split()
        member = self._members.get(name) or self._members.setdefault(name, Member(name, self._address))
        getattr(self, verb)(member, *words)
        return self.gather(AT_ONCE_S * self._slowness if action.endswith("...") else PATIENCE_S, [name])

    def gather(self, seconds: float, names: list[str] | None = None) -> list[str]:
        """Collect the answers that come within this time, or until all named clients have theirs."""
        events: list[str] = []
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if names is not None and not any(self._members[name].asked for name in names):
                left = min(left, TOGETHER_S * self._slowness)
            ready = self._ready(left)
            if not ready:
                break
            events += [self.describe_answer(member) for member in ready]
        return sorted(events)

    def _ready(self, seconds: float) -> list[Member]:
        """The members whose answer has begun to arrive within this time."""
        with selectors.DefaultSelector() as selector:
            for member in self._members.values():
                if member.asked:
                    selector.register(member.connection.fileno(), selectors.EVENT_READ, member)
            return [key.data for key, _ in selector.select(seconds)]

    def describe_answer(self, member: Member) -> str:
        response = member.answer()
        if isinstance(response, LeaveGroupResponse):
            codes = [response.error_code, *(each.error_code for each in response.members)]
            return f"{member.name}: {' '.join(ErrorCode(code).name for code in codes)}"
        if isinstance(response, OffsetCommitResponse):
            return f"{member.name}: commits {ErrorCode(response.topics[0].partitions[0].error_code).name}"
        if isinstance(response, JoinGroupResponse) and response.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            member.member_id = response.member_id
        if response.error_code:
            return f"{member.name}: {ErrorCode(response.error_code).name}"
        if isinstance(response, JoinGroupResponse):
            member.generation, member.protocol = response.generation_id, response.protocol_name
            names = sorted(each.member_id.split("-")[0] for each in response.members)
            leader = "leads" if response.leader == response.member_id else "follows"
            return (
                f"{member.name}: generation {response.generation_id} {response.protocol_type} {response.protocol_name}"
                f" {leader} {','.join(names)} {'skips' if response.skip_assignment else ''}"
            )
        if isinstance(response, SyncGroupResponse):
            chosen = f"{response.protocol_type} {response.protocol_name}"
            return f"{member.name}: {chosen} gets {response.assignment.decode()}"
        return f"{member.name}: is alive"

    def await_coordinator(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._admin.request(DescribeGroupsRequest(groups=[self.group]), 4).groups[0].error_code:
            assert time.monotonic() < deadline, "the group has no coordinator"

    def state(self) -> str:
        (group,) = self._admin.request(DescribeGroupsRequest(groups=[self.group]), 4).groups
        members = sorted(
            f"{each.group_instance_id or each.client_id}={each.member_assignment.decode()}"
            f"{'+' if each.member_metadata else ''} at {each.client_host}"
            for each in group.members
        )
        return f"[{group.group_state} {group.protocol_type} {group.protocol_data} {' '.join(members)}]"

    # --- the verbs of a script ---

    def joins(self, member: Member, *words: str) -> None:
        changes: dict[str, Any] = {"id": None}
        for word in words:
            key, _, value = word.partition("=")
            changes[key] = type(getattr(Joining(), key) or "")(value)
        member.joining = joining = replace(member.joining, **changes)
        request = joining.request("" if joining.id == "none" else joining.id or member.member_id)
        request.group_id = self.group
        member.ask(request, joining.version)

    def restarts(self, member: Member) -> None:
        member.member_id, member.generation = "", -1

    def hangs_up(self, member: Member) -> None:
        """Close the connection and open another one. The client keeps its state."""
        member.connection.close()
        member.connection = RawClient(*self._address, client_id=member.name, timeout_s=PATIENCE_S)
        member.asked = None

    def syncs(self, member: Member, *words: str) -> None:
        given = dict(word.split("=") for word in words)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.joining.instance,
            protocol_type=member.joining.type,
            protocol_name=member.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=self._members[name].member_id, assignment=assignment.encode())
                for name, assignment in given.items()
            ],
        )
        member.ask(request, 5 if member.protocol else 4)

    def beats(self, member: Member) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.joining.instance,
        )
        member.ask(request, 4)

    def leaves(self, member: Member) -> None:
        identity = MemberIdentity(member_id=member.member_id, group_instance_id=member.joining.instance)
        member.ask(LeaveGroupRequest(group_id=self.group, members=[identity]), 5)

    def removes(self, member: Member, instances: str) -> None:
        members = [MemberIdentity(group_instance_id=each) for each in instances.split(",")]
        member.ask(LeaveGroupRequest(group_id=self.group, members=members), 5)

    def commits(self, member: Member, generation: str = "") -> None:
        partition = OffsetCommitRequestPartition(committed_offset=1)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=int(generation) if generation else member.generation,
            member_id=member.member_id,
            group_instance_id=member.joining.instance,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        member.ask(request, 9)
