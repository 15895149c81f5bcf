"""Exactly-once, one transaction for each task of a batch: for sinks whose driver hears of a batch only at its end.

A task (`TaskLedger.begin`, then `seal`) writes its rows and its own ledger in a transaction that it leaves open. The
driver (`commit`) first writes the decision: an offset of the group `<query>-<topic>`, batch id + 1, with the identities
of all open transactions in its metadata. From then on the batch must land, and every replay of it only ends what was
left open. Before it, nothing has landed, and whoever begins a task again aborts what it had left open.

A transaction may time out after the decision and before its end. If that happened to all tasks, the decision is taken
back and the batch is written again. If it happened to some, the batch cannot be mended, because another attempt may
give other rows to each task; unless the user knows that it does not (`deterministic`): then only the missing tasks are
written again.

What a crash leaves open is aborted when a task of the same number begins again. A batch that is planned anew may have
fewer tasks than before, so the driver looks for what is left (`end_leftovers`). If the query never comes back, readers
of committed rows wait at that place until the transaction times out.

Spark may run a task twice at the same time. The later attempt aborts what the earlier one wrote, and yet Spark may go
by the earlier one: so before the decision all transactions must be open still, as the tasks have left them.

Metadata of an offset may have 4096 bytes. What does not fit goes to the groups `<query>-<topic>-decision-<n>` before.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.exactly_once.batch_ledger import TIMEOUT_MS, LedgerLost, end_quietly, has_landed, ledger_name
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.client.transaction_states import abort_transactions, list_transactional_ids, transaction_states
from ottla.client.transactions import ProducerIdentity, commit_offsets_in_transaction, end_transaction, init_producer
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition

METADATA_MAX = 3500
"""Characters, all of them of one byte; a broker takes 4096 bytes unless it is told otherwise."""

_TOO_LATE = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
"""A transaction has ended or never was: its ledger tells which."""


class PartlyLanded(Exception):
    """A batch of which some tasks can never land; one line."""


class BatchToRepeat(Exception):
    """A batch that was decided has not landed, and nothing is left of it: it must be written again."""


class TransactionsLost(Exception):
    """A batch whose transactions were ended by somebody else before it was decided; one line."""


class OpenTask(NamedTuple):
    """A task that has written everything, and waits for the decision."""

    task: int
    producer_id: int
    epoch: int
    protocol: int

    def __str__(self) -> str:
        return f"{self.task}.{self.producer_id}.{self.epoch}.{self.protocol}"


class TaskLedger:
    """Of one query and topic; made anew in every process that needs it."""

    def __init__(
        self,
        client: Client,
        query_id: str,
        topic: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        deterministic: bool = False,
        resume: bool = False,
    ) -> None:
        self._client = client
        self.name = ledger_name(query_id, topic)
        self._where = TopicPartition(topic, 0)
        self._timeout_ms = timeout_ms
        self._deterministic = deterministic
        self._resume = resume

    # In a task

    def begin(self, batch_id: int, task: int) -> ProducerIdentity | None:
        """The identity to write with, for a task that has rows; None if there is nothing to write any more."""
        if self._is_decided(batch_id):
            return None
        name = self._task_name(task)
        if self._deterministic and has_landed(self._ledger(task), batch_id, name, resume=True):
            return None
        return init_producer(self._client, name, self._timeout_ms)

    def seal(self, batch_id: int, task: int, producer: ProducerIdentity) -> OpenTask:
        """After the last row has been acknowledged: what the driver is told."""
        landed = {self._where: CommittedOffset(batch_id + 1, f"batch {batch_id}")}
        commit_offsets_in_transaction(self._client, producer, self._task_name(task), landed)
        return OpenTask(task, producer.producer_id, producer.epoch, producer.protocol)

    def abandon(self, producer: ProducerIdentity) -> None:
        """Of a task that failed."""
        end_quietly(self._client, producer)

    # In the driver

    def commit(self, batch_id: int, tasks: Sequence[OpenTask]) -> None:
        """Decide that the batch lands, and let it land. May be repeated after any crash, with or without tasks."""
        if self._is_decided(batch_id):
            tasks = self._decision(batch_id)
        else:
            self._refuse_lost(batch_id, tasks)
            self._decide(batch_id, tasks)
        missing = [task for task in tasks if not self._end(batch_id, task)]
        if not missing:
            return
        if len(missing) < len(tasks) and not self._deterministic:
            raise PartlyLanded(
                f"batch {batch_id} of {self.name!r} is partly written: it was decided, but of {len(tasks)} tasks the "
                f"transactions of {', '.join(str(each.task) for each in missing)} timed out before they were ended. A "
                "larger transaction timeout avoids it; a query whose tasks get the same rows again may go on if it is "
                "declared deterministic"
            )
        self._write_decision(batch_id, [])
        raise BatchToRepeat(
            f"the transactions of {len(missing)} tasks of batch {batch_id} of {self.name!r} timed out before they were "
            "ended. Nothing of them was written; when the query is started again it writes them again"
        )

    def abort(self, batch_id: int, tasks: Sequence[OpenTask]) -> None:
        """Undo what was not decided."""
        if not self._is_decided(batch_id):
            for task in tasks:
                end_quietly(self._client, self._identity(task))

    def end_leftovers(self) -> list[str]:
        """After a crash, and when no task is at work: abort what its tasks have left open, and name it."""
        numbered = re.compile(re.escape(self.name) + r"-\d+")
        try:
            found = list_transactional_ids(self._client, f"{self.name}-", only_open=True)
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:  # a broker before 3.0: there they time out
                raise
            return []
        leftovers = [name for name in found if numbered.fullmatch(name)]
        abort_transactions(self._client, leftovers)
        return leftovers

    def _refuse_lost(self, batch_id: int, tasks: Sequence[OpenTask]) -> None:
        """TransactionsLost unless all are open, as their tasks have left them."""
        try:
            states = transaction_states(self._client, [self._task_name(each.task) for each in tasks])
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return
        lost = []
        for each in tasks:
            state = states.get(self._task_name(each.task))
            as_left = state is not None and (state.producer_id, state.epoch) == (each.producer_id, each.epoch)
            if state is None or not as_left or not state.is_open:
                lost.append(each.task)
        if lost:
            raise TransactionsLost(
                f"batch {batch_id} of {self.name!r} was not written: the transactions of tasks "
                f"{', '.join(map(str, lost))} were ended by somebody else. They were open for longer than "
                f"transaction.timeout.ms ({self._timeout_ms}), or a second query runs with the same checkpoint, or "
                "Spark has run these tasks twice at the same time"
            )

    # Decision

    def _is_decided(self, batch_id: int) -> bool:
        return has_landed(self._read(self.name), batch_id, self.name, resume=self._resume)

    def _decide(self, batch_id: int, tasks: Sequence[OpenTask]) -> None:
        self._write_decision(batch_id + 1, tasks)

    def _write_decision(self, offset: int, tasks: Sequence[OpenTask]) -> None:
        """The parts first: with the head the decision is made."""
        parts = _parts([str(task) for task in tasks])
        for number, part in enumerate(parts[1:], 1):
            self._write(self._part_name(number), offset, part)
        self._write(self.name, offset, f"{len(parts)} {parts[0]}")

    def _decision(self, batch_id: int) -> list[OpenTask]:
        """What was decided; nothing if a later batch has been decided since, for then this one has landed."""
        head = self._read(self.name)
        if head is None or head.offset > batch_id + 1:
            return []
        count, _, first = head.metadata.partition(" ")
        texts = [first]
        for number in range(1, int(count)):
            part = self._read(self._part_name(number))
            if part is None or part.offset != head.offset:
                raise LedgerLost(f"the decision {self._part_name(number)!r} about batch {batch_id} is gone")
            texts.append(part.metadata)
        return [OpenTask(*map(int, task.split("."))) for text in texts for task in text.split()]

    def _end(self, batch_id: int, task: OpenTask) -> bool:
        """Whether the task has landed. What is no clear answer is raised: the decision stands, and is tried again."""
        try:
            end_transaction(self._client, self._identity(task), commit=True)
            return True
        except KafkaError as error:
            if error.code not in _TOO_LATE:
                raise
        return has_landed(self._ledger(task.task), batch_id, self._task_name(task.task), resume=True)

    # Names and offsets

    def _identity(self, task: OpenTask) -> ProducerIdentity:
        return ProducerIdentity(task.producer_id, task.epoch, self._task_name(task.task), task.protocol)

    def _task_name(self, task: int) -> str:
        return f"{self.name}-{task}"

    def _part_name(self, number: int) -> str:
        return f"{self.name}-decision-{number}"

    def _ledger(self, task: int) -> CommittedOffset | None:
        return self._read(self._task_name(task))

    def _read(self, group: str) -> CommittedOffset | None:
        return fetch_offsets(self._client, group, [self._where], require_stable=True).get(self._where)

    def _write(self, group: str, offset: int, metadata: str) -> None:
        commit_offsets(self._client, group, {self._where: CommittedOffset(offset, metadata)})


def _parts(words: Sequence[str]) -> list[str]:
    """Words joined with spaces into texts that metadata has room for; one text at least."""
    parts = [""]
    for word in words:
        if len(parts[-1]) + 1 + len(word) > METADATA_MAX:
            parts.append("")
        parts[-1] = f"{parts[-1]} {word}".lstrip()
    return parts
