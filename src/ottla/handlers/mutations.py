"""What handlers that create or delete partitions share: the quota controller_mutation_rate (KIP-599).

Each partition takes a token. Versions from `strict_from` on know THROTTLING_QUOTA_EXCEEDED: what comes after the bucket
is overdrawn is refused with it, and clients try that again after throttle_time_ms. Older versions are served, and their
connection is muted for long enough. Each broker counts what it is asked for itself.
"""

from typing import Any, Protocol

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError


class Throttled(Protocol):
    throttle_time_ms: int


class MutationQuota:
    """The quota as one request sees it."""

    def __init__(self, node: Node, call: Call[Any], strict_from: int) -> None:
        self._quota = node.quotas.controller_mutation
        self._call = call
        self._is_strict = call.version >= strict_from
        self._throttle_ms = 0

    @property
    def is_active(self) -> bool:
        return self._quota.is_active

    def take(self, partitions: int) -> None:
        """Count partitions that are about to be created or deleted. KafkaError if that is refused."""
        call = self._call
        name = call.client.principal.name
        throttle_ms = self._quota.take_tokens(name, call.client_id, partitions, strict=self._is_strict)
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
        if self._is_strict and throttle_ms:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "controller_mutation_rate is exceeded")

    def settle(self, response: Throttled) -> None:
        """Tell the client how long to wait."""
        if self._throttle_ms:
            response.throttle_time_ms = self._throttle_ms
            self._call.client.mute(self._throttle_ms)


def choose_affordable(node: Node, call: Call[Any], names: list[str], partitions: int) -> list[str]:
    """The topics that the client may have created by asking for them. It asks again for the others."""
    quota = MutationQuota(node, call, strict_from=0)
    if not quota.is_active:
        return names
    chosen = []
    for name in names:
        try:
            quota.take(partitions)
        except KafkaError:
            break
        chosen.append(name)
    return chosen
