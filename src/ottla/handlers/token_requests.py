"""What the four APIs of delegation tokens share: who may use them, and how a token is found by its secret."""

import hmac
from collections.abc import Callable
from typing import Any

from ottla.broker.call import Call
from ottla.broker.node import Node
from ottla.cluster.identities import DelegationToken
from ottla.cluster.identity_changes import PrincipalName
from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError
from ottla.security.principal import ANONYMOUS
from ottla.security.tokens import derive_secret


def require_user(node: Node, call: Call[Any]) -> PrincipalName:
    """The client. It must have authenticated, and not with a token: a token would never have to end."""
    client = call.client
    identity = None if client.sasl is None else client.sasl.identity
    if client.principal == ANONYMOUS or (identity is not None and identity.by_token):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens are for clients that have authenticated, and not with a token",
        )
    if node.config.delegation_token_secret_key is None:
        message = "delegation tokens are off (delegation.token.secret.key)"
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, message)
    return PrincipalName(*client.principal)


def name_resource(who: PrincipalName) -> str:
    """How ACLs name a user whose tokens are made or described."""
    return f"{who.type}:{who.name}"


def find_by_secret(node: Node, secret: bytes) -> Callable[[Image], DelegationToken | None]:
    """A function that finds the token with this secret."""
    key = node.config.delegation_token_secret_key or ""

    def find(image: Image) -> DelegationToken | None:
        known: dict[bytes, str] | None = image.identities.__dict__.get("secrets")
        if known is None or len(known) != len(image.identities.tokens):
            known = {derive_secret(key, token_id): token_id for token_id in image.identities.tokens}
            image.identities.__dict__["secrets"] = known
        token_id = known.get(bytes(secret))
        if token_id is None or not hmac.compare_digest(derive_secret(key, token_id), bytes(secret)):
            return None
        return image.identities.tokens.get(token_id)

    return find
