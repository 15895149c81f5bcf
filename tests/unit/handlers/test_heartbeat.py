"""Heartbeat: what the group says is told, except that it is still being loaded."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.call import Call, Client
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import heartbeat
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def beat(error: ErrorCode) -> Any:
    """At a coordinator that refuses with this."""

    def refuse(*_: Any) -> Any:
        raise KafkaError(error)

    node: Any = SimpleNamespace(groups=SimpleNamespace(heartbeat=refuse))
    client = Client(1, "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))
    return heartbeat.handle(node, Call(12, 4, 1, "client", HeartbeatRequest(group_id="group"), client))


def test_a_member_need_not_know_that_its_group_is_being_loaded() -> None:
    # It would take an error for the end of its membership; when the group is loaded it has a new session anyway.
    assert beat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) == HeartbeatResponse()


def test_every_other_refusal_is_told() -> None:
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        beat(ErrorCode.NOT_COORDINATOR)
