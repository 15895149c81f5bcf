"""CreateDelegationToken: a secret by which programs act for the user who asks for it (KIP-48).

Versions: 2 flexible; 3 an owner. A token of another user needs CREATE_TOKENS on that user. Without an
authorizer Kafka makes tokens of anybody for everybody; here they are for their owners only.
"""

from base64 import urlsafe_b64encode
from functools import partial

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.delegation_tokens import create_token
from ottla.cluster.identities import DelegationToken
from ottla.cluster.identity_changes import PrincipalName
from ottla.errors import KafkaError
from ottla.handlers.authorization import may, refusal
from ottla.handlers.token_requests import name_resource, require_user
from ottla.security.rights import CREATE_TOKENS_OF_USER, parts
from ottla.security.tokens import derive_secret
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

REQUIRES = parts(CREATE_TOKENS_OF_USER)
NO_TIME = -1


async def handle(node: Node, call: Call[CreateDelegationTokenRequest]) -> CreateDelegationTokenResponse:
    requester = PrincipalName(*call.client.principal)
    owner = requester
    if call.body.owner_principal_name:
        owner = PrincipalName(call.body.owner_principal_type or "", call.body.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    try:
        token = await _create(node, call, owner)
    except KafkaError as error:
        response.error_code = error.code
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
        return response
    response.issue_timestamp_ms = token.issued_at_ms
    response.expiry_timestamp_ms = token.expires_at_ms
    response.max_timestamp_ms = token.max_at_ms
    response.token_id = token.id
    response.hmac = derive_secret(node.config.delegation_token_secret_key or "", token.id)
    return response


async def _create(node: Node, call: Call[CreateDelegationTokenRequest], owner: PrincipalName) -> DelegationToken:
    requester = require_user(node, call)
    if owner != requester and not _may_act_for(node, call, owner):
        raise refusal(CREATE_TOKENS_OF_USER)
    decide = partial(
        create_token,
        token_id=urlsafe_b64encode(node.random.randbytes(16)).decode().rstrip("="),
        owner=owner,
        requester=requester,
        renewers=[PrincipalName(each.principal_type, each.principal_name) for each in call.body.renewers],
        max_lifetime_ms=call.body.max_lifetime_ms,
        config=node.config,
        now_ms=node.clock.now_ms(),
    )
    return await node.metadata.change(decide, node.config.request_timeout_ms / 1000)


def _may_act_for(node: Node, call: Call[CreateDelegationTokenRequest], owner: PrincipalName) -> bool:
    return node.authorizer is not None and may(node, call, CREATE_TOKENS_OF_USER, name_resource(owner))
