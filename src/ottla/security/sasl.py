"""SASL of a listener, and the authentication of one connection: which mechanisms there are, and who the client is.

A connection begins with SaslHandshake, which names a mechanism, and goes on with tokens of that mechanism: in
SaslAuthenticate requests, or as bare frames after version 0 of the handshake. A client that has authenticated may do so
again at any time (KIP-368), by the same mechanism and as the same user.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

from ottla.security import plain, scram
from ottla.security.failure import AuthenticationFailed
from ottla.security.principal import Principal

REAUTHENTICATION_PAUSE_S = 1.0
"""How long a client waits at least before it authenticates again."""


class Identity(NamedTuple):
    """Who has authenticated."""

    principal: Principal
    expires_at_ms: int | None = None
    """When the token of the client expires; None for a password."""
    by_token: bool = False
    """Whether the client has shown a delegation token."""


class TokenCredential(NamedTuple):
    """A delegation token as a user of SCRAM."""

    credential: scram.ScramCredential
    owner: Principal
    expires_at_ms: int


class Credentials(Protocol):
    """The users and delegation tokens in the metadata."""

    def find_user(self, mechanism: str, name: str) -> scram.ScramCredential | None: ...

    async def find_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """None if there is no such token, or if it has expired."""

    def invent_user(self, mechanism: str, name: str) -> scram.ScramCredential:
        """What a user that does not exist is answered with: the same by all brokers, always."""


class TokenValidator(Protocol):
    """Checks the token of OAUTHBEARER."""

    async def authenticate(self, message: bytes) -> Identity: ...


@dataclass(frozen=True)
class ListenerSasl:
    """What all connections of a listener share."""

    mechanisms: tuple[str, ...]
    credentials: Credentials
    random: Random
    now_ms: Callable[[], int]
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: TokenValidator | None = None
    reauthentication_ms: Mapping[str, int] = field(default_factory=dict)
    """Mechanism -> connections.max.reauth.ms."""
    receive_bytes_max: int = 524_288
    failure_delay_s: float = 0.1


class SaslSession:
    """The authentication of one connection."""

    def __init__(self, sasl: ListenerSasl, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock."""
        self.sasl = sasl
        self.identity: Identity | None = None
        """None until the client has authenticated."""
        self.is_raw = False
        """Whether the next frames are bare tokens, as after version 0 of the handshake."""
        self.has_failed = False
        self.failure = "SASL mechanism not available"
        """Why it has failed, for the log."""
        self.mechanism = ""
        self.expires_at_s: float | None = None
        """When the client must have authenticated again."""
        self._now_s = now_s
        self._pending = ""
        """The mechanism of an authentication in progress."""
        self._conversation: scram.ServerConversation | None = None
        self._claimed: Identity | None = None
        self._refusal: AuthenticationFailed | None = None
        self._authenticated_at_s = float("-inf")

    def expects_token(self) -> bool:
        return bool(self._pending)

    @property
    def has_expired(self) -> bool:
        return self.expires_at_s is not None and self._now_s() > self.expires_at_s

    def begin(self, mechanism: str, *, raw: bool) -> bool:
        """The client has chosen a mechanism. Returns whether it can be used; AuthenticationFailed if it may not be."""
        if self.identity is not None:
            if mechanism != self.mechanism:
                self.has_failed = True
                raise AuthenticationFailed(
                    f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                    f"mechanism '{self.mechanism}'"
                )
            if self._now_s() - self._authenticated_at_s < REAUTHENTICATION_PAUSE_S:
                self.has_failed = True
                raise AuthenticationFailed("Re-authentication is not allowed more than once per second")
        if mechanism not in self.sasl.mechanisms:
            self.has_failed = True
            return False
        self._pending, self.is_raw = mechanism, raw
        self._conversation = self._claimed = self._refusal = None
        return True

    async def step(self, token: bytes) -> bytes:
        """Take a token of the client. Returns the answer of the server; AuthenticationFailed if it is over."""
        try:
            return await self._step(token)
        except AuthenticationFailed as error:
            self.has_failed, self.failure = True, error.detail or error.message
            self._pending = ""
            raise

    async def _step(self, token: bytes) -> bytes:
        if self._pending == "PLAIN":
            name = plain.authenticate(token, self.sasl.plain_users)
            self._complete(Identity(Principal("User", name)))
            return b""
        if self._pending == "OAUTHBEARER" and self.sasl.oauth is not None:
            return await self._take_bearer_token(self.sasl.oauth, token)
        if self._pending not in scram.HASHES:
            raise AuthenticationFailed("no SASL mechanism was chosen")
        if self._conversation is None:
            return await self._begin_scram(token)
        answer = self._conversation.finish(token)
        assert self._claimed is not None
        self._complete(self._claimed)
        return answer

    async def _take_bearer_token(self, validator: TokenValidator, token: bytes) -> bytes:
        """RFC 7628: a token that is not accepted is answered with the reason; the client's next message ends it."""
        if self._refusal is not None:
            raise self._refusal
        try:
            self._complete(await validator.authenticate(token))
        except AuthenticationFailed as error:
            if not error.token:
                raise
            self._refusal = error
            return error.token
        return b""

    async def _begin_scram(self, token: bytes) -> bytes:
        first = scram.read_client_first(token)
        sasl, mechanism = self.sasl, self._pending
        credential: scram.ScramCredential | None
        if first.extensions.get("tokenauth", "").lower() == "true":
            found = await sasl.credentials.find_token(mechanism, first.name)
            credential = None if found is None else found.credential
            owner = Principal("User", first.name) if found is None else found.owner
            self._claimed = Identity(owner, None if found is None else found.expires_at_ms, by_token=True)
        else:
            credential = sasl.credentials.find_user(mechanism, first.name)
            self._claimed = Identity(Principal("User", first.name))
        decoy = sasl.credentials.invent_user(mechanism, first.name)
        nonce = sasl.random.randbytes(scram.NONCE_BYTES)
        self._conversation = scram.ServerConversation(mechanism, first, credential or decoy, nonce)
        return self._conversation.server_first

    def _complete(self, identity: Identity) -> None:
        before, mechanism = self.identity, self._pending
        if before is not None and before.principal != identity.principal:
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {before.principal.type}."
                f"{before.principal.name}: {identity.principal.type}.{identity.principal.name}"
            )
        if identity.expires_at_ms is not None and identity.expires_at_ms <= self.sasl.now_ms():
            raise AuthenticationFailed("the token has expired")
        self.identity, self.mechanism = identity, mechanism
        self._pending, self._conversation, self._claimed, self.is_raw = "", None, None, False
        self._authenticated_at_s = self._now_s()
        lifetime_ms = self.lifetime_ms()
        self.expires_at_s = None if lifetime_ms is None else self._authenticated_at_s + lifetime_ms / 1000

    def lifetime_ms(self) -> int | None:
        """How long the client may go on without authenticating again; None: as long as it likes."""
        assert self.identity is not None
        limit = self.sasl.reauthentication_ms.get(self.mechanism, 0) or None
        expires_at_ms = self.identity.expires_at_ms
        left_ms = None if expires_at_ms is None else max(expires_at_ms - self.sasl.now_ms(), 0)
        return min((each for each in (limit, left_ms) if each is not None), default=None)
