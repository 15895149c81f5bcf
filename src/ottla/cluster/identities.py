"""Users of SCRAM and delegation tokens, as part of the metadata: what changes do to them, and their snapshot."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from immutables import Map

from ottla.cluster.identity_changes import (
    IdentityChange,
    PrincipalName,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetDecoySecret,
    SetDelegationToken,
    SetScramCredential,
)
from ottla.security.scram import ITERATIONS_MIN, NUMBERS, ScramCredential

MECHANISM_NAMES: Mapping[int, str] = {number: name for name, number in NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class DelegationToken:
    id: str
    owner: PrincipalName
    requester: PrincipalName
    renewers: tuple[PrincipalName, ...]
    issued_at_ms: int
    max_at_ms: int
    expires_at_ms: int

    def has_expired(self, now_ms: int) -> bool:
        return min(self.max_at_ms, self.expires_at_ms) < now_ms


@dataclass(frozen=True)
class Identities:
    """All users of SCRAM and all delegation tokens, immutable like the image that they are part of."""

    scram: Map[tuple[str, int], ScramCredential] = field(default_factory=Map)
    """(user, Kafka's number of the mechanism) -> its keys."""
    tokens: Map[str, DelegationToken] = field(default_factory=Map)
    decoy_secret: bytes = b""

    @cached_property
    def usual_iterations(self) -> int:
        """The most frequent number of iterations. The answer for a user that does not exist names it, so that it looks
        like the answer for one that exists."""
        counts: dict[int, int] = {}
        for credential in self.scram.values():
            counts[credential.iterations] = counts.get(credential.iterations, 0) + 1
        return max(counts, key=lambda each: (counts[each], each), default=ITERATIONS_MIN)


NO_IDENTITIES = Identities()


def replay_identity(before: Identities, change: IdentityChange) -> Identities:
    """The identities after a change. ValueError if the change does not fit them."""
    match change:
        case SetScramCredential(name, mechanism, salt, stored_key, server_key, iterations):
            if mechanism not in MECHANISM_NAMES or not name:
                raise ValueError(f"a user {name!r} of mechanism {mechanism}")
            credential = ScramCredential(salt, stored_key, server_key, iterations)
            return replace(before, scram=before.scram.set((name, mechanism), credential))
        case RemoveScramCredential(name, mechanism):
            if (name, mechanism) not in before.scram:
                raise ValueError(f"no user {name!r} of mechanism {mechanism}")
            return replace(before, scram=before.scram.delete((name, mechanism)))
        case SetDecoySecret(secret):
            return replace(before, decoy_secret=secret)
        case SetDelegationToken(token_id, owner, requester, renewers, issued_at_ms, max_at_ms, expires_at_ms):
            token = DelegationToken(token_id, owner, requester, renewers, issued_at_ms, max_at_ms, expires_at_ms)
            return replace(before, tokens=before.tokens.set(token_id, token))
        case RemoveDelegationToken(token_id):
            if token_id not in before.tokens:
                raise ValueError(f"no delegation token {token_id!r}")
            return replace(before, tokens=before.tokens.delete(token_id))


def snapshot_identities(identities: Identities) -> Iterator[IdentityChange]:
    """Changes that replay from no identities into these. Equal identities give equal changes, in the same order."""
    if identities.decoy_secret:
        yield SetDecoySecret(identities.decoy_secret)
    for name, mechanism in sorted(identities.scram):
        yield SetScramCredential(name, mechanism, *identities.scram[name, mechanism])
    for token_id in sorted(identities.tokens):
        yield describe_token(identities.tokens[token_id])


def describe_token(token: DelegationToken) -> SetDelegationToken:
    """The change that stores a token."""
    return SetDelegationToken(
        token.id,
        token.owner,
        token.requester,
        token.renewers,
        token.issued_at_ms,
        token.max_at_ms,
        token.expires_at_ms,
    )
