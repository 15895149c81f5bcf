"""OffsetFetch: how far a group, or several, had come.

Versions: 1 from the broker; 2 all partitions of a group, an error for the group; 3 throttle time; 5 leader epoch;
6 flexible; 7 only stable offsets (KIP-447); 8 many groups at once (KIP-709); 9 member id and epoch (KIP-848);
10 topic ids.
"""

from ottla.call import Call
from ottla.errors import ErrorCode, KafkaError
from ottla.node import Node
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

VERSIONS = range(1, 11)


async def handle(node: Node, call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    request = call.body
    return OffsetFetchResponse(
        groups=[await fetch(node, group, call.version, request.require_stable) for group in request.groups]
    )


async def fetch(
    node: Node, request: OffsetFetchRequestGroup, version: int, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        response: OffsetFetchResponseGroup = await node.groups.run(
            request.group_id,
            lambda groups, turn: groups.fetch_offsets(request, turn, version=version, require_stable=require_stable),
        )
    except KafkaError as error:
        return refused(request, error.code, version)
    return response


def refused(request: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """Version 1 has no error of the group: every partition that was asked for has to carry it."""
    topics = []
    if version < 2:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code, topics=topics)
