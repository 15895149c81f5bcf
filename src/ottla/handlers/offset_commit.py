"""OffsetCommit: store the offsets up to which a group has read.

Versions: 2 retention time, for all partitions; 3 throttle time; 5 no retention time (KIP-211); 6 leader epoch
(KIP-320); 7 static members (KIP-345); 8 flexible; 9 consumer groups (KIP-848); 10 topic ids (KIP-848).
"""

from collections.abc import Coroutine
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

VERSIONS = range(2, 11)


def handle(
    node: Node, call: Call[OffsetCommitRequest]
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    return node.groups.commit_offsets(call.body, version=call.version)
