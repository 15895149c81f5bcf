"""Exactly-once with one transaction per task of a batch, for sinks whose driver is called only at the end of a batch.

A task (`TaskLedger.begin`, then `seal`) writes its rows and its own ledger in a transaction that it leaves open. The
driver (`commit`) first writes the decision: an offset of group `<query>-<topic>`, batch id + 1, with the identities of
all open transactions in its metadata. From then on the batch must land, and a repetition only commits what is still
open. Before the decision nothing has landed, and a task that begins again aborts what it left open.

A transaction may time out between the decision and its commit. If that happens to all tasks, the decision is withdrawn
and the batch is written again. If it happens to some, the batch cannot be repaired, because another attempt may
distribute the rows differently; unless the user declares that it does not (`deterministic`), then only the missing
tasks are written again.

Transactions that a crash leaves open are aborted when a task of the same number begins again. The next batch may have
fewer tasks, so the driver also looks for the others (`end_leftovers`). If the query never restarts, readers of
committed records wait until the transactions time out.

Spark may run two attempts of a task at the same time. The later one aborts the transaction of the earlier one, and yet
Spark may accept the earlier one. So before the decision all transactions must be open, as the tasks left them.

The metadata of an offset holds at most 4096 bytes. The rest of a decision is written before, as offsets of the groups
`<query>-<topic>-decision-<n>`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.exactly_once.batch_ledger import TIMEOUT_MS, LedgerLost, end_quietly, has_landed, ledger_name
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.client.transaction_states import abort_transactions, find_transaction_states, list_transactional_ids
from ottla.client.transactions import ProducerIdentity, commit_offsets_in_transaction, end_transaction, init_producer
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition

METADATA_MAX = 3500
"""Characters, all of them ASCII. The broker's default offset.metadata.max.bytes is 4096."""

_TOO_LATE = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
"""The transaction has ended; the task's ledger shows whether it was committed."""


class PartlyLanded(Exception):
    """Some tasks of a decided batch can never be committed. The message is one line."""


class BatchToRepeat(Exception):
    """All transactions of a decided batch were aborted: the batch must be written again."""


class TransactionsLost(Exception):
    """Transactions of a batch ended before the decision. The message is one line."""


class OpenTask(NamedTuple):
    """A task that has written its rows in a transaction that is still open."""

    task: int
    producer_id: int
    epoch: int
    protocol: int

    def __str__(self) -> str:
        return f"{self.task}.{self.producer_id}.{self.epoch}.{self.protocol}"


class TaskLedger:
    """The ledger of one query and topic. It has no state, so that any process can make one."""

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
        """The identity with which a task writes its rows; None if they are written already."""
        if self._is_decided(batch_id):
            return None
        name = self._name_task(task)
        if self._deterministic and has_landed(self._read_ledger(task), batch_id, name, resume=True):
            return None
        return init_producer(self._client, name, self._timeout_ms)

    def seal(self, batch_id: int, task: int, producer: ProducerIdentity) -> OpenTask:
        """Add the task's ledger to its transaction, after all rows are acknowledged. The result goes to the driver."""
        landed = {self._where: CommittedOffset(batch_id + 1, f"batch {batch_id}")}
        commit_offsets_in_transaction(self._client, producer, self._name_task(task), landed)
        return OpenTask(task, producer.producer_id, producer.epoch, producer.protocol)

    def abandon(self, producer: ProducerIdentity) -> None:
        """Abort the transaction of a task that failed."""
        end_quietly(self._client, producer)

    # In the driver

    def commit(self, batch_id: int, tasks: Sequence[OpenTask]) -> None:
        """Write the decision, then commit all transactions. May be repeated after any crash, with or without tasks."""
        if self._is_decided(batch_id):
            tasks = self._read_decision(batch_id)
        else:
            self._require_open(batch_id, tasks)
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
        """Abort the transactions of a batch, unless it was decided."""
        if not self._is_decided(batch_id):
            for task in tasks:
                end_quietly(self._client, self._find_identity(task))

    def end_leftovers(self) -> list[str]:
        """Abort the transactions that a crash left open, and return their ids. No task may be running."""
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

    def _require_open(self, batch_id: int, tasks: Sequence[OpenTask]) -> None:
        """Raises TransactionsLost unless all transactions are open, as their tasks left them."""
        try:
            states = find_transaction_states(self._client, [self._name_task(each.task) for each in tasks])
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return
        lost = []
        for each in tasks:
            state = states.get(self._name_task(each.task))
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
        """Write the parts first, because the offset of the group itself makes the decision."""
        parts = _list_parts([str(task) for task in tasks])
        for number, part in enumerate(parts[1:], 1):
            self._write(self._name_part(number), offset, part)
        self._write(self.name, offset, f"{len(parts)} {parts[0]}")

    def _read_decision(self, batch_id: int) -> list[OpenTask]:
        """The tasks of a decided batch; none if a later batch was decided, because then this one has landed."""
        head = self._read(self.name)
        if head is None or head.offset > batch_id + 1:
            return []
        count, _, first = head.metadata.partition(" ")
        texts = [first]
        for number in range(1, int(count)):
            part = self._read(self._name_part(number))
            if part is None or part.offset != head.offset:
                raise LedgerLost(f"the decision {self._name_part(number)!r} about batch {batch_id} is gone")
            texts.append(part.metadata)
        return [OpenTask(*map(int, task.split("."))) for text in texts for task in text.split()]

    def _end(self, batch_id: int, task: OpenTask) -> bool:
        """Commit a task's transaction; False if it was aborted. After another error the decision stands."""
        try:
            end_transaction(self._client, self._find_identity(task), commit=True)
            return True
        except KafkaError as error:
            if error.code not in _TOO_LATE:
                raise
        return has_landed(self._read_ledger(task.task), batch_id, self._name_task(task.task), resume=True)

    # Names and offsets

    def _find_identity(self, task: OpenTask) -> ProducerIdentity:
        return ProducerIdentity(task.producer_id, task.epoch, self._name_task(task.task), task.protocol)

    def _name_task(self, task: int) -> str:
        return f"{self.name}-{task}"

    def _name_part(self, number: int) -> str:
        return f"{self.name}-decision-{number}"

    def _read_ledger(self, task: int) -> CommittedOffset | None:
        return self._read(self._name_task(task))

    def _read(self, group: str) -> CommittedOffset | None:
        return fetch_offsets(self._client, group, [self._where], require_stable=True).get(self._where)

    def _write(self, group: str, offset: int, metadata: str) -> None:
        commit_offsets(self._client, group, {self._where: CommittedOffset(offset, metadata)})


def _list_parts(words: Sequence[str]) -> list[str]:
    """Words joined with spaces into texts of at most METADATA_MAX characters; at least one text."""
    parts = [""]
    for word in words:
        if len(parts[-1]) + 1 + len(word) > METADATA_MAX:
            parts.append("")
        parts[-1] = f"{parts[-1]} {word}".lstrip()
    return parts
