"""The authentication of one connection: what is refused when a client logs in again, or shows a token too late."""

import asyncio
from random import Random
from typing import Any

import pytest

from ottla.security.failure import AuthenticationFailed
from ottla.security.principal import Principal
from ottla.security.sasl import REAUTHENTICATION_PAUSE_S, Identity, ListenerSasl, SaslSession

USERS = {"alice": "secret", "admin": "other"}
TOKEN = b"\0alice\0secret"
NO_CREDENTIALS: Any = None


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0


class Bearer:
    """Accepts every token, for so long."""

    def __init__(self, expires_at_ms: int) -> None:
        self._expires_at_ms = expires_at_ms

    async def authenticate(self, message: bytes) -> Identity:
        return Identity(Principal("User", message.decode()), self._expires_at_ms)


def begin(clock: Clock, **settings: Any) -> SaslSession:
    mechanisms = ("PLAIN", "OAUTHBEARER")
    sasl = ListenerSasl(
        mechanisms, NO_CREDENTIALS, Random(1), lambda: int(clock.now_s * 1000), plain_users=USERS, **settings
    )
    return SaslSession(sasl, lambda: clock.now_s)


def log_in(session: SaslSession, token: bytes = TOKEN, mechanism: str = "PLAIN") -> bytes:
    assert session.begin(mechanism, raw=False)
    return asyncio.run(session.step(token))


def test_nobody_authenticates_again_all_the_time() -> None:
    # Once a second at most, as in Kafka: each time costs the broker a derivation of keys, or a check of a signature.
    clock = Clock()
    session = begin(clock)
    log_in(session)
    with pytest.raises(AuthenticationFailed, match="more than once per second"):
        session.begin("PLAIN", raw=False)
    assert session.has_failed
    patient = begin(clock)
    log_in(patient)
    clock.now_s += REAUTHENTICATION_PAUSE_S
    log_in(patient)
    assert patient.identity is not None


def test_a_client_stays_who_it_is() -> None:
    clock = Clock()
    session = begin(clock)
    log_in(session)
    clock.now_s += 5
    with pytest.raises(AuthenticationFailed, match="Cannot change principals"):
        log_in(session, b"\0admin\0other")
    assert session.has_failed
    assert session.identity == Identity(Principal("User", "alice"))


def test_a_token_that_has_expired_when_it_is_shown_is_refused() -> None:
    # The validator may allow for clocks that differ, or have waited for the keys of the provider.
    clock = Clock()
    session = begin(clock, oauth=Bearer(expires_at_ms=1_000_000))
    with pytest.raises(AuthenticationFailed, match="expired"):
        log_in(session, b"alice", "OAUTHBEARER")
    assert session.identity is None


def test_a_session_ends_with_its_token_or_with_the_limit() -> None:
    clock = Clock()
    for limit_ms, lifetime_ms in ((0, 60_000), (90_000, 60_000), (20_000, 20_000)):
        session = begin(clock, oauth=Bearer(1_060_000), reauthentication_ms={"OAUTHBEARER": limit_ms})
        log_in(session, b"alice", "OAUTHBEARER")
        assert session.lifetime_ms() == lifetime_ms
        assert session.expires_at_s == clock.now_s + lifetime_ms / 1000


def test_a_token_without_a_mechanism_is_refused() -> None:
    session = begin(Clock())
    with pytest.raises(AuthenticationFailed, match="no SASL mechanism"):
        asyncio.run(session.step(TOKEN))
    assert session.identity is None
