"""The entrance of a listener with TLS or SASL: who a client is, and what it may send until that is known.

A client of a listener with SASL meets a guard. Before it has authenticated, it may send ApiVersions, SaslHandshake and
SaslAuthenticate only, in frames of limited size and for a limited time. A failed authentication is answered late, and
then the connection is closed. After it, the guard lets everything pass until the session of the client has expired.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.call import Answer, Client, CloseConnection, Dispatch, Frame, OwnedCoroutine, Result
from ottla.observability.metrics import LoginMeter
from ottla.security.failure import AuthenticationFailed
from ottla.security.listener import ListenerSecurity
from ottla.security.names import NoMatchingRule
from ottla.security.sasl import Identity, SaslSession
from ottla.server.traffic import Traffic

if TYPE_CHECKING:
    from ottla.server.hellos import Turns

AUTHENTICATION_S = 30.0
"""Time for a client to authenticate."""

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36


class Guarded(Protocol):
    """A connection as its guard sees it."""

    client: Client
    address: str

    def abort(self) -> None: ...

    def drain(self) -> None: ...

    def let_in(self, dispatch: Dispatch) -> None: ...


class Entrance:
    def __init__(self, security: ListenerSecurity, authentication_s: float = AUTHENTICATION_S) -> None:
        self.security = security
        self.authentication_s = authentication_s
        self.logins = LoginMeter()
        self.turns: Turns | None = None
        """If the listener has TLS: the turns of handshakes. Whoever uses its handshake gives its turn back."""

    def enter(
        self, connection: Guarded, transport: asyncio.BaseTransport, traffic: Traffic, dispatch: Dispatch
    ) -> "Guard | Newcomer | None":
        """Learn who the client is. CloseConnection if it is nobody.

        Returns what stands between the client and dispatch: its guard if it has to authenticate, or what waits for the
        first request of a client with TLS.
        """
        session = self.security.begin_session(traffic.loop.time)
        if session is not None:
            connection.client.sasl = session
            return Guard(connection, session, traffic, dispatch, self)
        tls = transport.get_extra_info("ssl_object")
        try:
            connection.client.principal = self.security.identify(tls.getpeercert(True) if tls is not None else None)
        except (NoMatchingRule, ValueError) as error:
            self.logins.failed += 1
            raise CloseConnection(str(error)) from None
        self.logins.successful += 1
        return None if self.turns is None else Newcomer(connection, self.turns, dispatch)


class Newcomer:
    """A client with TLS and without SASL, until it uses its handshake with its first request."""

    __slots__ = ("_connection", "_dispatch", "_turns")

    def __init__(self, connection: Guarded, turns: "Turns", dispatch: Dispatch) -> None:
        self._connection: Guarded | None = connection
        self._turns = turns
        self._dispatch = dispatch

    def leave(self) -> None:
        """The connection is closed."""
        self._connection = None

    def limit_frame(self, limit: int) -> int:
        return limit

    def __call__(self, client: Client, frame: Frame) -> Result:
        if self._connection is not None:
            self._turns.note_use(self._connection.address)
            self._connection.let_in(self._dispatch)
        return self._dispatch(client, frame)


class Guard:
    """Stands between a connection and dispatch."""

    __slots__ = ("_connection", "_dispatch", "_entrance", "_session", "_timer", "_traffic")

    def __init__(
        self,
        connection: Guarded,
        session: SaslSession,
        traffic: Traffic,
        dispatch: Dispatch,
        entrance: Entrance,
    ) -> None:
        self._connection: Guarded | None = connection
        self._session = session
        self._traffic = traffic
        self._dispatch = dispatch
        self._entrance = entrance
        self._timer: asyncio.TimerHandle | None = traffic.loop.call_later(entrance.authentication_s, self._give_up)

    def leave(self) -> None:
        """The connection is closed."""
        self._connection = None
        self._stop_timer()

    def limit_frame(self, limit: int) -> int:
        """The largest frame that the client may send now, if others may send `limit`."""
        return limit if self._session.identity is not None else min(limit, self._session.sasl.receive_bytes_max)

    def __call__(self, client: Client, frame: Frame) -> Result:
        session = self._session
        key = frame[0] << 8 | frame[1] if len(frame) >= 2 else -1
        if session.identity is not None and not session.is_raw:
            if key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
                if session.expires_at_s is not None and session.has_expired:
                    self._entrance.logins.expired += 1
                    raise CloseConnection("its session has expired (connections.max.reauth.ms)")
                return self._dispatch(client, frame)
            return self._authenticate(client, frame)
        if len(frame) > session.sasl.receive_bytes_max:
            return self._refuse(f"a request of {len(frame)} bytes before authentication")
        if session.is_raw:
            return self._take_raw(client, bytes(frame))
        if key == SASL_AUTHENTICATE if session.expects_token() else key in (API_VERSIONS, SASL_HANDSHAKE):
            return self._authenticate(client, frame) if key != API_VERSIONS else self._dispatch(client, frame)
        return self._refuse(f"API {key} before authentication")

    def _authenticate(self, client: Client, frame: Frame) -> Coroutine[Any, Any, Answer | asyncio.Future[Answer]]:
        before = self._session.identity
        result = self._dispatch(client, frame)
        return self._finish(OwnedCoroutine(result) if isinstance(result, Coroutine) else result, before)

    async def _finish(
        self, result: Answer | asyncio.Future[Answer] | OwnedCoroutine, before: Identity | None
    ) -> Answer:
        """`before`: who the client was before the request."""
        answer: Any = result
        if isinstance(result, OwnedCoroutine):
            answer = await result.coroutine
        elif isinstance(result, asyncio.Future):
            answer = await result
        if self._session.has_failed:
            self._note_failure()
            await self._delay()
            if self._connection is not None:
                self._connection.drain()
        elif self._session.identity is not None:
            if before is None:
                self._let_in()
            elif self._session.identity is not before:
                self._entrance.logins.successful_again += 1
        settled: Answer = answer
        return settled

    async def _take_raw(self, client: Client, token: bytes) -> Answer:
        try:
            answer = await self._session.step(token)
        except AuthenticationFailed as error:
            self._note_failure()
            await self._delay()
            raise CloseConnection(error.message) from None
        if self._session.identity is not None and not self._session.is_raw:
            client.principal = self._session.identity.principal
            client.allowed.clear()
            self._let_in()
        return [answer]

    def _let_in(self) -> None:
        self._stop_timer()
        self._entrance.logins.successful += 1
        if self._entrance.turns is not None and self._connection is not None:
            self._entrance.turns.note_use(self._connection.address)

    async def _refuse(self, reason: str) -> Answer:
        self._session.has_failed = True
        self._entrance.logins.failed += 1
        if self._connection is not None:
            self._traffic.warn(f"closed the connection of {self._connection.address}: {reason}")
        await self._delay()
        raise CloseConnection(reason)

    def _note_failure(self) -> None:
        if self._session.identity is None:
            self._entrance.logins.failed += 1
        else:
            self._entrance.logins.failed_again += 1
        connection = self._connection
        if connection is not None:
            where = f"{connection.address} at {connection.client.listener}"
            self._traffic.warn(f"the authentication of {where} failed: {self._session.failure}")

    async def _delay(self) -> None:
        await asyncio.sleep(self._session.sasl.failure_delay_s)

    def _give_up(self) -> None:
        self._timer = None
        if self._connection is not None:
            self._traffic.warn(f"closed the connection of {self._connection.address}: it has not authenticated in time")
            self._connection.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
