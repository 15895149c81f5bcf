"""Plays scripts of consumer groups against a broker, over a socket.

What clients do is written as in `tests/unit/coordinators/consumer_scripts`, which plays against the machine alone.
The assignor decides which partitions a member gets, so the transcript has only their number.
"""

import re
import time
from typing import Any

from ottla.cluster import changes
from ottla.cluster.image import EMPTY
from ottla.coordinators.machine import Turn
from ottla.errors import ErrorCode
from ottla.wire.message import Message
from ottla.wire.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeRequest, DescribedGroup
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.leave_group import LeaveGroupResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.raw_client import RawClient
from tests.unit.coordinators.consumer_scripts import Client, Stage

Asked = tuple[Message, int]

COORDINATOR_MISSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Requests:
    """Takes the place of the machine: returns each request with its newest version, for `run` to send it."""

    def consumer_group_heartbeat(self, request: Message, *_: Any) -> Asked:
        return request, 1

    def join_group(self, request: Message, *_: Any, **__: Any) -> Asked:
        return request, 9

    def sync_group(self, request: Message, *_: Any) -> Asked:
        return request, 5

    def heartbeat(self, request: Message, *_: Any) -> Asked:
        return request, 4

    def leave_group(self, request: Message, *_: Any) -> Asked:
        return request, 5


class ConsumerGroupPlayer(Stage):
    def begin(self, client: RawClient, group: str) -> None:
        self.connection, self.group_id = client, group
        self.groups: Any = Requests()
        made: list[changes.Change] = []
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in self.topics])
        found = client.request(asked, 12).topics
        while any(topic.error_code for topic in found):  # Apache Kafka shows a new topic some time after its answer
            found = client.request(asked, 12).topics
        for topic in found:
            made.append(changes.CreateTopic(topic.topic_id, topic.name))
            for number in range(len(topic.partitions)):
                made.append(changes.CreatePartition(topic.topic_id, number, (1,), (1,), 1))
        self.image = EMPTY.replay(1, made)
        while self._describe().error_code in COORDINATOR_MISSING:
            pass

    def transcript(self, script: str) -> list[str]:
        told = []
        for line in script.strip().splitlines():
            action = " ".join(line.split())
            self._act(action)
            told.append(f"{action} | {'; '.join(map(count_partitions, self.told()))} | {self.state()}")
        return told

    def run(self, client: Client | None, decide: Any) -> None:
        assert client is not None
        request, version = decide(Turn(0, 0, self.image, self.config, self.meters, 1))
        request.group_id = self.group_id
        response = self.connection.request(request, version)
        code = ErrorCode(response.error_code)
        if code and code is not ErrorCode.MEMBER_ID_REQUIRED:
            self.refused(client, code)
        elif isinstance(response, LeaveGroupResponse):
            self.tell(f"{client.name}: " + " ".join(ErrorCode(each.error_code).name for each in response.members))
        else:
            self._answer(client, response)

    def pass_ms(self, duration_ms: int) -> None:
        """Sleep: the brokers run on real time here."""
        time.sleep(duration_ms / 1000)

    def commits(self, client: Client, **words: str) -> None:
        places = [(each[0], int(each[1:])) for each in words.get("places", "").split(",") if each]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=int(words.get("epoch", client.epoch)),
            member_id=client.member_id,
            group_instance_id=client.instance,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(partition_index=number)])
                for name, number in places
            ],
        )
        response = self.connection.request(request, 9)
        codes = [ErrorCode(row.error_code).name for topic in response.topics for row in topic.partitions]
        self.tell(f"{client.name}: commits {' '.join(codes)}")

    def _describe(self) -> DescribedGroup:
        (group,) = self.connection.request(ConsumerGroupDescribeRequest(group_ids=[self.group_id]), 1).groups
        assert isinstance(group, DescribedGroup)
        return group

    def state(self) -> str:
        """The state of the group, classic or consumer."""
        group = self._describe()
        if group.error_code:
            (classic,) = self.connection.request(DescribeGroupsRequest(groups=[self.group_id]), 5).groups
            return f"classic {classic.group_state} {len(classic.members)}"
        members = sorted(
            f"{'consumer' if member.member_type else 'classic'} at {member.member_epoch}"
            f" has {amount(member.assignment)} of {amount(member.target_assignment)}"
            for member in group.members
        )
        epochs = f"{group.group_epoch}/{group.assignment_epoch}"
        return f"{group.group_state} {epochs} {group.assignor_name}: {', '.join(members)}"


def amount(assignment: Assignment) -> int:
    return sum(len(topic.partitions) for topic in assignment.topic_partitions)


def count_partitions(event: str) -> str:
    """Replace the partitions in an event by their number: `reads t0 t1 u0` becomes `reads 3`."""
    return re.sub(r"reads ([a-z]\d+(?: [a-z]\d+)*)", lambda found: f"reads {len(found[1].split())}", event)
