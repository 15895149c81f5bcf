"""Microseconds of a small request without its connection: python -m benchmarks.dispatch

A broker in this process gets each kind of small request again and again, through its dispatch: from the bytes of the
request to those of the answer, without a socket and without a second process. First the kinds that need only a topic,
then those of a group with one member. The result is the fastest of many short windows. Other programs on the machine
can only make a window slower, so this figure is steady where a rate is not, and shows whether a change pays off. The
socket, the event loop and the connection add about 10 us, two thirds of them in the kernel.

A second broker in the same process has an authorizer and a thousand ACLs, one of which gives the client its rights. The
difference between the two is what rights cost.
"""

import asyncio
import tempfile
import time
from functools import partial
from random import Random
from typing import Any

from benchmarks.loads.small_requests import CLIENT_ID, KINDS, Frame
from ottla.broker.broker import Broker
from ottla.broker.call import Client
from ottla.broker.dispatch import Dispatch
from ottla.broker.handler_table import HandlerTable
from ottla.cluster.acls import create_acls
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig
from ottla.security.acls import Acl
from ottla.security.operations import Operation, PatternType, Permission, ResourceType
from ottla.server import Server
from ottla.wire import frames
from ottla.wire.message import Message
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

WINDOW_REQUESTS = 30
SECONDS_EACH = 1.0
SIZE_BYTES = 4  # the size in front of a request, which the connection removes
READ, WRITTEN = "read", "written"
GROUP = "group"
CONNECTION_MICROSECONDS = 10
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
ACLS_OF_OTHERS = 1000


async def open_no_listener(server: Server, listener: object) -> int:
    return 0


def measure_microseconds(dispatch: Dispatch, client: Client, frame: bytes, seconds: float) -> float:
    first = dispatch(client, bytearray(frame))
    if asyncio.iscoroutine(first):
        first.close()
        raise TypeError("the answer takes a task of the event loop, whose time would not be counted")
    best = float("inf")
    clock = time.perf_counter
    end = clock() + seconds
    while (began := clock()) < end:
        for _ in range(WINDOW_REQUESTS):
            dispatch(client, bytearray(frame))
        best = min(best, clock() - began)
    return best / WINDOW_REQUESTS * 1e6


async def ask(dispatch: Dispatch, client: Client, message: Message, version: int) -> Any:
    """Send one request to the dispatch and wait for its answer."""
    answer: Any = dispatch(client, bytearray(frames.encode_request(message, version, 1, CLIENT_ID)[SIZE_BYTES:]))
    while asyncio.iscoroutine(answer) or isinstance(answer, asyncio.Future):
        answer = await answer
    return frames.decode_response(frames.find_api_of(message).response, version, b"".join(answer))[1]


async def build_group_frames(dispatch: Dispatch, client: Client) -> dict[str, Frame]:
    """Create a group with one member. Returns the requests that such a member sends all the time."""
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = await ask(dispatch, client, join, 3)
    member, generation = joined.member_id, joined.generation_id
    assignment = SyncGroupRequestAssignment(member_id=member, assignment=b"x")
    sync = SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id=member, assignments=[assignment])
    await ask(dispatch, client, sync, 3)
    partition = OffsetCommitRequestPartition(committed_offset=7, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=READ, partitions=[partition])],
    )
    fetched = OffsetFetchRequestTopics(name=READ, partition_indexes=[0])
    return {
        "heartbeat": Frame(HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member), 4),
        "offset commit": Frame(commit, 8),
        "offset fetch": Frame(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[fetched])]), 8
        ),
    }


def list_acls() -> list[Acl]:
    """Everything for the client of this benchmark, and one topic each for other users."""
    everything = [
        Acl(resource, "*", PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.ALL, Permission.ALLOW)
        for resource in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    return everything + [
        Acl(
            ResourceType.TOPIC,
            f"topic-{number}",
            PatternType.LITERAL,
            f"User:user-{number}",
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
        for number in range(ACLS_OF_OTHERS)
    ]


async def measure(seconds: float = SECONDS_EACH, *, authorizer: bool = False) -> dict[str, float]:
    """The microseconds of each kind of request."""
    with tempfile.TemporaryDirectory(prefix="ottla-dispatch-") as directory:
        config = BrokerConfig.of({"group.initial.rebalance.delay.ms": "0", **(AUTHORIZER if authorizer else {})})
        broker = Broker(config, directory, listen=open_no_listener, machine_code=False)
        await broker.start()
        try:
            for topic in (READ, WRITTEN):
                await broker.node.metadata.change(
                    partial(create_topic, topic=NewTopic(topic), config=broker.node.config, random=Random(topic))
                )
            if authorizer:
                await broker.node.metadata.change(partial(create_acls, acls=list_acls()))
            dispatch = Dispatch(broker.node, HandlerTable())
            client = Client(1, "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 9092))
            kinds = {name: kind(READ, WRITTEN) for name, kind in KINDS.items()}
            kinds |= await build_group_frames(dispatch, client)
            return {
                name: measure_microseconds(dispatch, client, kind.data[SIZE_BYTES:], seconds)
                for name, kind in kinds.items()
            }
        finally:
            await broker.stop(1)


def main() -> None:
    without, with_it = asyncio.run(measure()), asyncio.run(measure(authorizer=True))
    for name, microseconds in without.items():
        cost = with_it[name] - microseconds
        share = cost / (microseconds + CONNECTION_MICROSECONDS)
        print(f"{name:14} {microseconds:6.1f} us, rights {cost:+5.2f} us: {share:+.1%} with the connection")


if __name__ == "__main__":
    main()
