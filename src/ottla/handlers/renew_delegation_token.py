"""RenewDelegationToken: give a delegation token a later expiry (KIP-48). Its owner and its renewers may do that.

Versions: 2 flexible.
"""

from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.delegation_tokens import renew_token
from ottla.handlers.token_requests import find_by_secret, require_user
from ottla.security.rights import NOTHING
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

REQUIRES = NOTHING


async def handle(node: Node, call: Call[RenewDelegationTokenRequest]) -> RenewDelegationTokenResponse:
    decide = partial(
        renew_token,
        who=require_user(node, call),
        find=find_by_secret(node, bytes(call.body.hmac)),
        period_ms=call.body.renew_period_ms,
        config=node.config,
        now_ms=node.clock.now_ms(),
    )
    expires_at_ms = await node.metadata.change(decide, node.config.request_timeout_ms / 1000)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
