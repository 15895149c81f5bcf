"""DescribeTransactions: the state and the partitions of transactions, by transactional id (KIP-664).

Versions: 0.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

VERSIONS = range(0, 1)


async def handle(node: Node, call: Call[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[await describe(node, transactional_id) for transactional_id in call.body.transactional_ids]
    )


async def describe(node: Node, transactional_id: str) -> TransactionState:
    try:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return await node.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
