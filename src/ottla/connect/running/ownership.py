"""Which run of a connector may write: each run takes the transactional ids of the connector and its tasks.

    <group.id>-<connector>        of the run itself; it writes nothing, its epoch only tells who the owner is
    <group.id>-<connector>-<n>    of task n, as in Kafka Connect

A new run raises the epoch of its own id first, then those of all task ids that the brokers know. A task id that a run
takes later is used only if the run is found to be still the owner after taking it. An older run that took the id after
its successor began therefore never uses it, and one that took it before is fenced: no two runs write at once, even if
they have given a source partition to different tasks.
"""

import re
from typing import Final

from ottla.client.client import Client
from ottla.client.transaction_states import list_transactional_ids
from ottla.client.transactions import ProducerIdentity, init_producer, raise_epoch, renew_epoch
from ottla.connect.connector import ConnectorContext
from ottla.connect.errors import ConnectError
from ottla.errors import ErrorCode, KafkaError

_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class TakenOver(ConnectError):
    """Another run of the connector was started, here or on another worker."""


class Ownership:
    """For one thread."""

    def __init__(self, client: Client, context: ConnectorContext, timeout_ms: int) -> None:
        self._client = client
        self._name = f"{context.worker_group}-{context.name}"
        self._timeout_ms = timeout_ms
        self._run: ProducerIdentity | None = None

    def claim(self) -> None:
        """Fence all earlier runs. What they have not committed is aborted."""
        self._run = init_producer(self._client, self._name, self._timeout_ms)
        is_task = re.compile(re.escape(self._name) + r"-\d+").fullmatch
        for name in list_transactional_ids(self._client, f"{self._name}-"):
            if is_task(name):
                raise_epoch(self._client, name)

    def start_task(self, number: int) -> ProducerIdentity:
        """The identity for the next transaction of a task. Its earlier transaction is aborted if it is open."""
        producer = init_producer(self._client, f"{self._name}-{number}", self._timeout_ms)
        self._check()
        return producer

    def _check(self) -> None:
        assert self._run is not None
        try:
            self._run = renew_epoch(self._client, self._run, self._timeout_ms)
        except KafkaError as error:
            if error.code in _FENCED:
                raise TakenOver("another run of the connector was started; this one ends") from None
            raise
