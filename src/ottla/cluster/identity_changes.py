"""Changes of the metadata log about users and delegation tokens. `encoding.py` encodes them with all others."""

from dataclasses import dataclass
from typing import NamedTuple


class PrincipalName(NamedTuple):
    """A principal as the metadata writes it."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class SetScramCredential:
    """The keys of a user of SCRAM, derived from its password. `mechanism` is Kafka's number."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:  # keys belong into no log
        return f"SetScramCredential(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"


@dataclass(frozen=True, slots=True)
class RemoveScramCredential:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, repr=False)
class SetDecoySecret:
    """Makes the salts of users that do not exist. Made once, with the first user."""

    secret: bytes

    def __repr__(self) -> str:
        return "SetDecoySecret()"


@dataclass(frozen=True, slots=True)
class SetDelegationToken:
    """A new delegation token, or a new expiry of one. The token's secret is no part of the metadata: brokers derive it
    from the id, with delegation.token.secret.key."""

    token_id: str
    owner: PrincipalName
    requester: PrincipalName
    renewers: tuple[PrincipalName, ...]
    issued_at_ms: int
    max_at_ms: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class RemoveDelegationToken:
    token_id: str


IdentityChange = (
    SetScramCredential | RemoveScramCredential | SetDecoySecret | SetDelegationToken | RemoveDelegationToken
)
