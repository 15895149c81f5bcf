"""DescribeTransactions: the state and the partitions of transactions, by transactional id (KIP-664).

Versions: 0.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.authorization import may, require
from ottla.security import rights
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

REQUIRES = rights.parts(rights.DESCRIBE_TRANSACTIONAL_ID, rights.DESCRIBE_TOPIC)


async def handle(node: Node, call: Call[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            await describe(node, call, transactional_id) for transactional_id in call.body.transactional_ids
        ]
    )


async def describe(node: Node, call: Call[DescribeTransactionsRequest], transactional_id: str) -> TransactionState:
    try:
        require(node, call, rights.DESCRIBE_TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        state = await node.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    state.topics = [topic for topic in state.topics if may(node, call, rights.DESCRIBE_TOPIC, topic.topic)]
    return state
