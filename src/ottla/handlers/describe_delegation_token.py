"""DescribeDelegationToken: the delegation tokens that a client owns or may renew, with their secrets (KIP-48).

Those of others need DESCRIBE on the token or DESCRIBE_TOKENS on the owner.

Versions: 2 flexible; 3 who asked for a token.
"""

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.delegation_tokens import may_use
from ottla.cluster.identities import DelegationToken
from ottla.cluster.identity_changes import PrincipalName
from ottla.handlers.authorization import may
from ottla.handlers.token_requests import name_resource, require_user
from ottla.security.rights import DESCRIBE_TOKEN, DESCRIBE_TOKENS_OF_USER, parts
from ottla.security.tokens import derive_secret
from ottla.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

REQUIRES = parts(DESCRIBE_TOKEN, DESCRIBE_TOKENS_OF_USER)


def handle(node: Node, call: Call[DescribeDelegationTokenRequest]) -> DescribeDelegationTokenResponse:
    who = require_user(node, call)
    owners = call.body.owners
    wanted = None if owners is None else [PrincipalName(each.principal_type, each.principal_name) for each in owners]
    key = node.config.delegation_token_secret_key or ""
    found = []
    for _, token in sorted(node.image.identities.tokens.items()):
        is_wanted = wanted is None or any(may_use(token, each) for each in wanted)
        if is_wanted and (may_use(token, who) or _may_see(node, call, token)):
            renewers = [
                DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
                for each in token.renewers
            ]
            found.append(
                DescribedDelegationToken(
                    principal_type=token.owner.type,
                    principal_name=token.owner.name,
                    token_requester_principal_type=token.requester.type,
                    token_requester_principal_name=token.requester.name,
                    issue_timestamp=token.issued_at_ms,
                    expiry_timestamp=token.expires_at_ms,
                    max_timestamp=token.max_at_ms,
                    token_id=token.id,
                    hmac=derive_secret(key, token.id),
                    renewers=renewers,
                )
            )
    return DescribeDelegationTokenResponse(tokens=found)


def _may_see(node: Node, call: Call[DescribeDelegationTokenRequest], token: DelegationToken) -> bool:
    if node.authorizer is None:
        return False  # Kafka would show everybody the secrets of all
    return may(node, call, DESCRIBE_TOKEN, token.id, silent=True) or may(
        node, call, DESCRIBE_TOKENS_OF_USER, name_resource(token.owner), silent=True
    )
