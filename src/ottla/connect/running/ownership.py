"""Which run of a connector may write: each run takes the transactional ids of the connector and its tasks.

    <group.id>-<connector>        of the run itself; it writes nothing, its epoch only tells who the owner is
    <group.id>-<connector>-<n>    of task n, as in Kafka Connect

A new run raises the epoch of its own id first, then those of all task ids that the brokers know. A task id that a run
takes later is used only if the run is found to be still the owner after taking it. An older run that took the id after
its successor began therefore never uses it, and one that took it before is fenced: no two runs write at once, even if
they have given a source partition to different tasks.
"""

import re
from threading import Lock
from typing import Final

from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.client.transaction_states import find_transaction_states, list_transactional_ids
from ottla.client.transactions import ProducerIdentity, init_producer, raise_epoch, renew_epoch
from ottla.connect.connector import ConnectorContext
from ottla.connect.errors import ConnectError
from ottla.errors import ErrorCode, KafkaError

_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class TakenOver(ConnectError):
    """Another run of the connector was started, here or on another worker."""


class Ownership:
    """For one thread, but for `call_back`."""

    def __init__(self, client: Client, context: ConnectorContext, timeout_ms: int) -> None:
        self._client = client
        self._name = f"{context.worker_group}-{context.name}"
        self._timeout_ms = timeout_ms
        self._run: ProducerIdentity | None = None
        self._lock = Lock()
        """Held while the epoch of the run is raised."""

    @property
    def run(self) -> ProducerIdentity:
        """The identity of the run. Its epoch changes when the run calls its tasks back, when it starts a task, and when
        another run has claimed the connector."""
        assert self._run is not None
        return self._run

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

    def call_back(self, client: Client) -> None:
        """Let tasks that would go on for long come to an end at their next offset, as `is_called_back` tells them.
        Callable from any thread, with a client of its own."""
        with self._lock:
            self._run = renew_epoch(client, self.run, self._timeout_ms)

    def _check(self) -> None:
        try:
            with self._lock:
                self._run = renew_epoch(self._client, self.run, self._timeout_ms)
        except KafkaError as error:
            if error.code in _FENCED:
                raise TakenOver("another run of the connector was started; this one ends") from None
            raise


def is_called_back(client: Client, run: ProducerIdentity) -> bool:
    """In a task: whether the run that has ordered it wants it to end. False if the brokers do not say."""
    assert run.transactional_id is not None
    try:
        found = find_transaction_states(client, [run.transactional_id]).get(run.transactional_id)
    except (KafkaError, Unreachable):
        return False
    return found is not None and (found.producer_id, found.epoch) != (run.producer_id, run.epoch)
