"""Heartbeat: errors of the group are returned, except that it is still being loaded."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.call import Call, Client
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers import heartbeat
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def beat(error: ErrorCode) -> Any:
    """Send a heartbeat to a coordinator that refuses it with this error."""

    def refuse(*_: Any) -> Any:
        raise KafkaError(error)

    node: Any = SimpleNamespace(groups=SimpleNamespace(heartbeat=refuse), authorizer=None)
    client = Client(1, "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2))
    return heartbeat.handle(node, Call(12, 4, 1, "client", HeartbeatRequest(group_id="group"), client))


def test_a_heartbeat_succeeds_while_the_group_is_loading() -> None:
    # The member would take an error for the end of its membership. When the group is loaded, it has a new session
    # anyway.
    assert beat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) == HeartbeatResponse()


def test_every_other_error_is_returned() -> None:
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        beat(ErrorCode.NOT_COORDINATOR)
