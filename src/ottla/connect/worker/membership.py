"""A worker's membership in its group, by Kafka's group protocol of type `connect`. A thread with a client of its own.

While the group rebalances, the worker keeps what it has. It loses everything at once only when the group has removed
it, for example because it was paused for longer than session.timeout.ms: then it stops its connectors before it joins
again, for others have taken them over.

The protocol's name and its messages are our own, so a worker of Kafka Connect cannot join the same group by mistake:

    metadata      {"worker_id", "owned": [connectors that run there, or may be started there any moment]}
    assignment    {"connectors": [...], "known": [all connectors that the leader knew of]}
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, Final

from ottla.client.client import Client, error_code
from ottla.client.connection import Unreachable
from ottla.connect.worker.topics import encode_json
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "connect"
PROTOCOL: Final = "ottla-1"
RETRY_S: Final = 1.0

_REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})
"""The group does not know this member any more, or has gone on without it."""


@dataclass(frozen=True)
class GroupSettings:
    group: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_s: float


@dataclass(frozen=True)
class Assignment:
    generation: int
    is_leader: bool
    connectors: frozenset[str]
    known: frozenset[str]
    """All connectors that the leader knew of when it decided."""


Assign = Callable[[Mapping[str, frozenset[str]]], tuple[Mapping[str, list[str]], frozenset[str]]]
"""The leader's decision, from what each member owns: the connectors of each member, and all that are known."""


def find_owned(metadata: bytes) -> frozenset[str] | None:
    """The connectors that a member has, by its metadata; None if this is not what a worker writes."""
    try:
        owned = json.loads(metadata)["owned"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return frozenset(owned) if isinstance(owned, list) and all(isinstance(each, str) for each in owned) else None


def read_assignment(data: bytes) -> tuple[frozenset[str], frozenset[str]] | None:
    """The connectors that a member gets and those that the leader knew of; None if no worker has written this."""
    try:
        found = json.loads(data)
        lists = (found["connectors"], found["known"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in lists):
        return None
    connectors, known = lists
    return frozenset(connectors), frozenset(known)


class _Removed(Exception):
    """The group has removed this member."""


class _BadLeader(Exception):
    """The leader of the group has sent what no worker sends. The worker keeps what it runs."""


class Membership:
    def __init__(
        self,
        client: Client,
        settings: GroupSettings,
        worker_id: str,
        *,
        get_owned: Callable[[], frozenset[str]],
        assign: Assign,
        wake: Callable[[], None],
        seconds: Callable[[], float],
    ) -> None:
        """`wake` is called after each change of `assignment`. The callbacks are called from the membership's thread."""
        self.assignment: Assignment | None = None
        """None before the group was joined, and after the group has removed the worker."""
        self.confirmed_s = float("-inf")
        """The last time at which the worker certainly was a member."""
        self.trouble: str | None = "the worker has not joined its group yet"
        self._client = client
        self._settings = settings
        self._worker_id = worker_id
        self._get_owned = get_owned
        self._assign = assign
        self._wake = wake
        self._seconds = seconds
        self._member_id = ""
        self._must_join = True
        self._is_stopping = False
        self._event = Event()
        self._thread = Thread(target=self._run, name=f"connect-group-{settings.group}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def rejoin(self) -> None:
        """Have the group rebalanced. Callable from any thread."""
        self._must_join = True
        self._event.set()

    def stop(self) -> None:
        """Leave the group and wait for the end of the thread. The worker's connectors have stopped before."""
        self._is_stopping = True
        self._event.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join()
        self._client.close()

    @property
    def is_certain(self) -> bool:
        """Whether the group cannot have removed the worker yet."""
        return self._seconds() - self.confirmed_s < self._settings.session_timeout_ms / 1000

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                if self._must_join:
                    self._join()
                else:
                    self._heartbeat()
                self.trouble = None
            except _Removed:
                self._lose_everything()
            except (KafkaError, Unreachable, _BadLeader) as error:
                self._report(error)
                self._pause(RETRY_S)
                continue
            except Exception as error:
                self._must_join = True
                self.trouble = f"{type(error).__name__}: {error}"
                log.exception("A step of the group's membership has failed; the worker joins again")
                self._pause(RETRY_S)
                continue
            if not self._must_join:
                self._pause(self._settings.heartbeat_s)
        self._leave()

    def _pause(self, seconds: float) -> None:
        self._event.wait(seconds)
        self._event.clear()

    def _report(self, error: Exception) -> None:
        trouble = f"group {self._settings.group!r}: {error}"
        if isinstance(error, KafkaError) and error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            trouble = (
                f"group {self._settings.group!r} has members of another kind, such as workers of Kafka Connect; "
                "stop them, or set another group.id"
            )
        if trouble != self.trouble:
            log.warning("%s", trouble)
        self.trouble = trouble

    def _lose_everything(self) -> None:
        """Wait until the connectors of this worker have stopped: from now on they belong to others."""
        log.warning("Group %r has removed this worker; its connectors are stopped before it joins again", self._group)
        self.trouble = "the group has removed the worker"
        self._member_id = ""
        self._must_join = True
        self.assignment = None
        self._wake()
        while self._get_owned() and not self._is_stopping:
            self._pause(self._settings.heartbeat_s / 10)

    @property
    def _group(self) -> str:
        return self._settings.group

    # Requests

    def _join(self) -> None:
        self._must_join = False  # before the metadata is read: what changes after that asks for another rebalance
        try:
            joined = self._ask_to_join()
            assignments = self._decide(joined) if joined.leader == joined.member_id else []
            sent_s = self._seconds()
            synced = self._ask(
                SyncGroupRequest(
                    group_id=self._group,
                    generation_id=joined.generation_id,
                    member_id=joined.member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=PROTOCOL,
                    assignments=assignments,
                )
            )
        except (KafkaError, Unreachable):
            self._must_join = True
            raise
        if synced is None:
            self._must_join = True
            return
        self.confirmed_s = sent_s
        found = read_assignment(bytes(synced.assignment))
        if found is None:
            self._must_join = True  # also a sign of life; the group is not rebalanced, for nothing has changed
            raise _BadLeader(
                f"its leader {joined.leader!r} is no worker of this version and assigns no connectors; "
                "end that member, or set another group.id"
            )
        connectors, known = found
        self.assignment = Assignment(joined.generation_id, joined.leader == joined.member_id, connectors, known)
        self._wake()

    def _ask_to_join(self) -> JoinGroupResponse:
        assigned = self.assignment.connectors if self.assignment is not None else frozenset()
        metadata = encode_json({"worker_id": self._worker_id, "owned": sorted(self._get_owned() | assigned)})
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._settings.session_timeout_ms,
                rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
            )
            answer: JoinGroupResponse = self._client.ask_coordinator("group", self._group, request)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            self._raise_for(answer.error_code)
            self._member_id = answer.member_id
            return answer

    def _decide(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        owned = {}
        for member in joined.members:
            found = find_owned(bytes(member.metadata))
            if found is None:
                log.warning("Member %r of group %r is no worker, and gets no connectors", member.member_id, self._group)
            else:
                owned[member.member_id] = found
        assigned, known = self._assign(owned)
        return [
            SyncGroupRequestAssignment(
                member_id=member, assignment=encode_json({"connectors": names, "known": sorted(known)})
            )
            for member, names in assigned.items()
        ]

    def _heartbeat(self) -> None:
        assert self.assignment is not None
        sent_s = self._seconds()
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.assignment.generation, member_id=self._member_id
        )
        if self._ask(request) is None:
            self._must_join = True
        self.confirmed_s = sent_s

    def _ask(self, request: SyncGroupRequest | HeartbeatRequest) -> Any:
        """The answer; None if the group rebalances."""
        answer = self._client.ask_coordinator("group", self._group, request)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        self._raise_for(answer.error_code)
        return answer

    def _raise_for(self, number: int) -> None:
        code = error_code(number)
        if code in _REMOVED:
            raise _Removed
        if code:
            raise KafkaError(code, f"group {self._group!r}")

    def _leave(self) -> None:
        if not self._member_id:
            return
        member = MemberIdentity(member_id=self._member_id, reason="the worker is stopping")
        request = LeaveGroupRequest(group_id=self._group, members=[member], member_id=self._member_id)
        try:
            self._client.ask_coordinator("group", self._group, request)
        except (KafkaError, Unreachable) as error:
            log.warning("Group %r was not left, it will notice after session.timeout.ms: %s", self._group, error)
