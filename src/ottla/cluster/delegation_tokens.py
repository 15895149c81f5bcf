"""Deciders for delegation tokens (KIP-48), with Kafka's checks and error codes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.cluster.changes import Change
from ottla.cluster.decision import Decision
from ottla.cluster.identities import DelegationToken, describe_token
from ottla.cluster.identity_changes import PrincipalName, RemoveDelegationToken
from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError

TOKENS_MAX = 100_000
RENEWERS_MAX = 1000
USER = "User"


def create_token(
    image: Image,
    token_id: str,
    owner: PrincipalName,
    requester: PrincipalName,
    renewers: Sequence[PrincipalName],
    max_lifetime_ms: int,
    config: BrokerConfig,
    now_ms: int,
) -> Decision[DelegationToken]:
    """Create a delegation token. `token_id` is random."""
    if any(each.type != USER for each in (owner, *renewers)):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, "owners and renewers are users")
    if len(image.identities.tokens) >= TOKENS_MAX:
        message = f"there are {TOKENS_MAX} delegation tokens already, which is the limit; expire some first"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    if len(renewers) > RENEWERS_MAX:
        message = f"{len(renewers)} renewers are given, {RENEWERS_MAX} are the limit for one token"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    longest_ms = config.delegation_token_max_lifetime_ms
    life_ms = min(longest_ms, max_lifetime_ms) if max_lifetime_ms > 0 else longest_ms
    ends_at_ms = now_ms + life_ms
    expires_at_ms = min(ends_at_ms, now_ms + config.delegation_token_expiry_time_ms)
    token = DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, ends_at_ms, expires_at_ms)
    return Decision([describe_token(token)], token)


def renew_token(
    image: Image,
    find: Callable[[Image], DelegationToken | None],
    who: PrincipalName,
    period_ms: int,
    config: BrokerConfig,
    now_ms: int,
) -> Decision[int]:
    """Give a token a later expiry, which is returned. Only its owner, its requester and its renewers may do that."""
    token = _require(find(image), who, now_ms)
    longest_ms = config.delegation_token_expiry_time_ms
    life_ms = min(longest_ms, period_ms) if period_ms > 0 else longest_ms
    renewed = replace(token, expires_at_ms=min(token.max_at_ms, now_ms + life_ms))
    return Decision([describe_token(renewed)], renewed.expires_at_ms)


def expire_token(
    image: Image, find: Callable[[Image], DelegationToken | None], who: PrincipalName, period_ms: int, now_ms: int
) -> Decision[int]:
    """Let a token expire after a time, or at once (a negative time). Returns when it does."""
    token = _require(find(image), who, now_ms)
    if period_ms < 0:
        return Decision([RemoveDelegationToken(token.id)], now_ms)
    expired = replace(token, expires_at_ms=min(token.max_at_ms, now_ms + period_ms))
    return Decision([describe_token(expired)], expired.expires_at_ms)


def remove_expired(image: Image, now_ms: int) -> Decision[int]:
    """Remove tokens that nobody can use any more. Returns how many."""
    tokens = image.identities.tokens
    gone: list[Change] = [
        RemoveDelegationToken(token_id) for token_id in sorted(tokens) if tokens[token_id].has_expired(now_ms)
    ]
    return Decision(gone, len(gone))


def may_use(token: DelegationToken, who: PrincipalName) -> bool:
    """Whether a user is the owner of a token, has asked for it, or is one of its renewers."""
    return who in (token.owner, token.requester) or who in token.renewers


def _require(token: DelegationToken | None, who: PrincipalName, now_ms: int) -> DelegationToken:
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such delegation token")
    if token.has_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the delegation token has expired")
    if not may_use(token, who):
        message = "only the owner, the requester and the renewers of a delegation token may renew or expire it"
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, message)
    return token
