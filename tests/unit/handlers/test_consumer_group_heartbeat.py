"""ConsumerGroupHeartbeat: what is refused before any group is asked."""

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.consumer_group_heartbeat import check
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)


@pytest.mark.parametrize(
    ("version", "wrong", "code"),
    [
        (1, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": "", "member_epoch": 1}, ErrorCode.INVALID_REQUEST),
        (0, {"member_id": "", "member_epoch": -1}, ErrorCode.INVALID_REQUEST),
        (1, {"group_id": " "}, ErrorCode.INVALID_REQUEST),
        (1, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        (1, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (1, {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (1, {"topic_partitions": [ConsumerGroupHeartbeatRequestTopicPartitions()]}, ErrorCode.INVALID_REQUEST),
        (1, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        (1, {"subscribed_topic_names": ["t" * 1000] * 300}, ErrorCode.INVALID_REQUEST),
        (1, {"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        (1, {"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        (1, {"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_bad_requests(version: int, wrong: dict[str, object], code: ErrorCode) -> None:
    # Each is refused with Kafka's code before any group is looked at; the same request without the fault is not.
    good: dict[str, object] = {
        "group_id": "group",
        "member_id": "a",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    check(ConsumerGroupHeartbeatRequest(**good), version, ("uniform", "range"))  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as refused:
        request = ConsumerGroupHeartbeatRequest(**{**good, **wrong})  # type: ignore[arg-type]
        check(request, version, ("uniform", "range"))
    assert refused.value.code is code
