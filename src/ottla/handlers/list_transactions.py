"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Versions: 1 a filter by duration (KIP-994); 2 a filter by a pattern of ids (KIP-1152).
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.coordinators.consumer.regular_expressions import check_pattern, match_patterns
from ottla.coordinators.transactions.machine import Filters
from ottla.coordinators.transactions.transaction import State, Transaction
from ottla.handlers.authorization import may
from ottla.security import rights
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

REQUIRES = rights.parts(rights.DESCRIBE_TRANSACTIONAL_ID)

STATES = {state.shown: state for state in State}


async def handle(node: Node, call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    request = call.body
    pattern = request.transactional_id_pattern
    if pattern:
        check_pattern(pattern)
    unknown = [name for name in request.state_filters if name not in STATES]
    filters = Filters(
        frozenset(STATES[name] for name in request.state_filters if name in STATES),
        frozenset(request.producer_id_filters),
        request.duration_filter,
    )
    found: list[Transaction] = []
    if not request.state_filters or filters.states:
        found = await node.transactions.list_transactions(filters)
    if pattern:
        names = match_patterns([pattern], (each.transactional_id for each in found))[pattern]
        found = [each for each in found if each.transactional_id in names]
    found = [
        each for each in found if may(node, call, rights.DESCRIBE_TRANSACTIONAL_ID, each.transactional_id, silent=True)
    ]
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.shown,
            )
            for each in found
        ],
    )
