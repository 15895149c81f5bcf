"""Fetch, versions 4 to 18: requests and responses to bytes and back, by hand because all records leave this way.

    messages.py   the classes of requests and responses
    requests.py   requests to bytes and back
    responses.py  responses to parts and back

    request     replica id (15: in tag 1, with its epoch), max wait, min bytes, max bytes, isolation level,
                7: session id, session epoch, topics [ name (13: id), partitions [ index, 9: current leader epoch,
                fetch offset, 12: last fetched epoch, 5: log start offset, max bytes, 17: tag 0, replica directory id,
                18: tag 1, high watermark ] ], 7: forgotten [ name (13: id), indexes ], 11: rack id,
                12: tag 0, cluster id
    response    throttle time, 7: error code, session id, topics [ name (13: id), partitions [ index, error code,
                high watermark, last stable offset, 5: log start offset, aborted transactions [ producer id,
                first offset ], 11: preferred read replica, records, 12: tag 0, diverging epoch, tag 1,
                current leader, tag 2, snapshot id ] ], 16: tag 0, node endpoints

The encoding is compact from version 12 on. A response is written as a list of parts: records stay slices of files
between the bytes around them, so that a connection can send them without copying them into Python.
"""

from ottla.wire.fetch.messages import (
    COMPACT_FROM,
    ENDPOINTS_FROM,
    HIGH_WATERMARK_UNSUPPORTED,
    RACK_FROM,
    TOPIC_ID_FROM,
    VERSIONS,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    Part,
    PartitionResult,
    Records,
    SnapshotId,
    TopicResult,
)
from ottla.wire.fetch.requests import read_request, write_request
from ottla.wire.fetch.responses import read_response, total_length, write_response

__all__ = [
    "COMPACT_FROM",
    "ENDPOINTS_FROM",
    "HIGH_WATERMARK_UNSUPPORTED",
    "RACK_FROM",
    "TOPIC_ID_FROM",
    "VERSIONS",
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "Part",
    "PartitionResult",
    "Records",
    "SnapshotId",
    "TopicResult",
    "read_request",
    "read_response",
    "total_length",
    "write_request",
    "write_response",
]
