"""The transaction coordinator of this broker: one named operation for each thing that can be asked of a transaction.

An operation finds the partition of `__transaction_state` that keeps the transactional id and runs one turn of that
partition's machine. A partition that another broker leads is refused with NOT_COORDINATOR, and the client looks the
coordinator up again. While the partition is being loaded, operations fail with COORDINATOR_LOAD_IN_PROGRESS.
"""

from collections.abc import Sequence

from ottla.cluster.producer_ids import ProducerIds
from ottla.coordinators.formats import TRANSACTION_FORMAT
from ottla.coordinators.internal_topics import TRANSACTIONS_TOPIC
from ottla.coordinators.machine import Outcome, ProducerIdentity, Turn
from ottla.coordinators.runtime import Coordinator, CoordinatorContext, Perform
from ottla.coordinators.transactions.machine import Filters, TransactionMachine
from ottla.coordinators.transactions.rules import FreshIdNeeded
from ottla.coordinators.transactions.transaction import Transaction
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_transactions import TransactionState
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class TransactionCoordinator(Coordinator[TransactionMachine]):
    OPERATIONS = (
        "add_partitions",
        "describe",
        "end",
        "find_missing_partitions",
        "init_producer_id",
        "list_transactions",
    )
    RUN_BELOW_MIN_ISR = frozenset({"describe", "find_missing_partitions", "list_transactions"})

    def __init__(
        self, context: CoordinatorContext, producer_ids: ProducerIds, perform: Perform[TransactionMachine]
    ) -> None:
        super().__init__(TRANSACTIONS_TOPIC, TRANSACTION_FORMAT, TransactionMachine, context, perform)
        self._producer_ids = producer_ids

    async def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Make the caller the owner of its transactional id; whoever had it before is fenced."""
        assert request.transactional_id is not None
        fresh_id: int | None = None

        def decide(machine: TransactionMachine, turn: Turn) -> Outcome:
            return machine.init_producer_id(request, turn, fresh_id)

        while True:
            try:
                response: InitProducerIdResponse = await self.run("init_producer_id", request.transactional_id, decide)
                return response
            except FreshIdNeeded:
                fresh_id = await self._producer_ids.next()

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition], *, version: int
    ) -> None:
        """Make partitions part of the producer's transaction; the first ones begin it."""
        await self.run(
            "add_partitions",
            transactional_id,
            lambda machine, turn: machine.add_partitions(transactional_id, producer, partitions, turn, version=version),
        )

    async def find_missing_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Which of these are not part of the producer's transaction."""
        missing: frozenset[TopicPartition] = await self.run(
            "find_missing_partitions",
            transactional_id,
            lambda machine, turn: machine.find_missing_partitions(transactional_id, producer, partitions, turn),
        )
        return missing

    async def end(self, request: EndTxnRequest, *, version: int) -> EndTxnResponse:
        """Commit or abort. `version` is that of the transaction protocol which the client speaks."""
        fresh_id: int | None = None

        def decide(machine: TransactionMachine, turn: Turn) -> Outcome:
            return machine.end(request, turn, version=version, fresh_id=fresh_id)

        while True:
            try:
                response: EndTxnResponse = await self.run("end", request.transactional_id, decide)
                return response
            except FreshIdNeeded:
                fresh_id = await self._producer_ids.next()

    async def describe(self, transactional_id: str) -> TransactionState:
        """TRANSACTIONAL_ID_NOT_FOUND if there is none of this name."""
        described: TransactionState = await self.run(
            "describe", transactional_id, lambda machine, turn: machine.describe(transactional_id, turn)
        )
        return described

    async def list_transactions(self, filters: Filters) -> list[Transaction]:
        """All transactional ids of this broker that pass the filters."""
        found: list[list[Transaction]] = await self.run_all(
            "list_transactions", lambda machine, turn: machine.list_transactions(filters, turn)
        )
        return [transaction for transactions in found for transaction in transactions]
