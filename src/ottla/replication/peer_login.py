"""How this broker logs in at the inter-broker listener of another one: TLS, and SASL with its own name and password.

Name and password are those of the login module of the inter-broker listener; with OAUTHBEARER a token takes their place
(`security/bearer.py`). A login that ends after some time (connections.max.reauth.ms, the end of a token) is renewed
before it does.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from ottla.config import BrokerConfig, ConfigError
from ottla.config.security_table import LISTENER_PREFIX, MECHANISMS
from ottla.errors import ErrorCode
from ottla.security import scram
from ottla.security.failure import AuthenticationFailed
from ottla.security.listener import read_module
from ottla.security.stores import find_files, stat_files
from ottla.security.tls import TlsContext, build_client_context
from ottla.system.threads import Offload
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.wire.peer import PeerConnection, PeerUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.security.bearer import BearerTokens

LOGIN_S = 10.0
RENEWAL_SHARE = 0.85
"""Share of the time of a login after which it is renewed."""

logger = logging.getLogger(__name__)


class PeerLogin:
    def __init__(self, config: BrokerConfig, random: Random, offload: Offload, now_ms: Callable[[], int]) -> None:
        """Reads the files of certificates. ConfigError names the setting that is wrong."""
        listener = config.endpoints.inter_broker
        self._config = config.of_listener(listener.name)
        self._prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
        self._random = random
        self._offload = offload
        self._renewals: dict[asyncio.Task[None], None] = {}
        self.logins = 0
        self.context: TlsContext | None = None
        self._files: tuple[object, ...] = ()
        if listener.protocol in ("SSL", "SASL_SSL"):
            self._load()
        self._mechanism = ""
        self._options: Mapping[str, str] = {}
        self._tokens: BearerTokens | None = None
        if listener.protocol.startswith("SASL_"):
            self._mechanism = self._config.sasl_mechanism_inter_broker_protocol
            if self._mechanism not in MECHANISMS:
                raise ConfigError(
                    f"sasl.mechanism.inter.broker.protocol: {self._mechanism} is not supported; choose one of "
                    f"{', '.join(MECHANISMS)}"
                )
            module = read_module(config, listener.name, self._mechanism)
            self._options = {} if module is None else module.options
            if self._mechanism == "OAUTHBEARER":
                own = config.of_listener(listener.name, self._mechanism)
                self._tokens = _read_token_source(own, self._options, now_ms)
            elif not self._options.get("username") or not self._options.get("password"):
                key = f"{self._prefix}{self._mechanism.lower()}.sasl.jaas.config"
                raise ConfigError(f"{key}: set username and password, with which this broker logs in at the others")

    def reload(self) -> None:
        """Load certificates whose files have changed. Reads files, so it has to run in a thread."""
        if self.context is not None and stat_files(find_files(self._config)) != self._files:
            try:
                self._load()
            except ConfigError as error:
                logger.error("the certificates for connections to other brokers stay as they are: %s", error)

    def _load(self) -> None:
        self._files = stat_files(find_files(self._config))
        prefix = self._prefix if f"{self._prefix}ssl.truststore.location" in self._config.given else ""
        self.context = build_client_context(self._config, prefix)

    async def enter(self, connection: PeerConnection) -> None:
        """Authenticate on a connection, and keep it authenticated. PeerUnavailable if the other broker refuses."""
        if not self._mechanism:
            return
        try:
            lifetime_ms = await self._authenticate(connection)
        except AuthenticationFailed as error:
            raise PeerUnavailable(f"{connection.name}: authentication failed: {error.message}") from None
        self.logins += 1
        if lifetime_ms:
            loop = asyncio.get_running_loop()
            loop.call_later(lifetime_ms / 1000 * RENEWAL_SHARE, self._begin_renewal, connection)

    def _begin_renewal(self, connection: PeerConnection) -> None:
        if connection.is_ready:
            task = asyncio.get_running_loop().create_task(self._renew(connection), name="login at another broker")
            self._renewals[task] = None
            task.add_done_callback(self._renewals.pop)

    async def _renew(self, connection: PeerConnection) -> None:
        try:
            await self.enter(connection)
        except Exception as error:  # the other broker closes the connection; a new one begins with a login
            logger.info("the login at another broker was not renewed: %s", error)

    async def _authenticate(self, connection: PeerConnection) -> int:
        answer: SaslHandshakeResponse = await connection.request(
            SaslHandshakeRequest(mechanism=self._mechanism), timeout_s=LOGIN_S
        )
        if answer.error_code:
            raise AuthenticationFailed(f"{ErrorCode(answer.error_code).name}, it has {', '.join(answer.mechanisms)}")
        if self._tokens is not None:
            return await self._show_token(connection, await self._offload(self._tokens.find))
        name, password = self._options["username"], self._options["password"]
        if self._mechanism == "PLAIN":
            return (await self._send(connection, f"\0{name}\0{password}".encode())).session_lifetime_ms
        conversation = scram.ClientConversation(
            self._mechanism,
            name,
            password,
            self._random.randbytes(scram.NONCE_BYTES),
            token=self._options.get("tokenauth", "").lower() == "true",
        )
        first = await self._send(connection, conversation.client_first)
        final = await self._offload(conversation.answer, bytes(first.auth_bytes))
        last = await self._send(connection, final)
        conversation.check(bytes(last.auth_bytes))
        return last.session_lifetime_ms

    async def _show_token(self, connection: PeerConnection, token: str) -> int:
        answer = await self._send(connection, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        if answer.auth_bytes:  # RFC 7628: why it was refused; the next message ends the attempt
            await self._send(connection, b"\x01")
            raise AuthenticationFailed("the other broker does not accept the token")
        return answer.session_lifetime_ms

    async def _send(self, connection: PeerConnection, token: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = await connection.request(
            SaslAuthenticateRequest(auth_bytes=token), timeout_s=LOGIN_S
        )
        if answer.error_code:
            raise AuthenticationFailed(answer.error_message or ErrorCode(answer.error_code).name)
        return answer


def _read_token_source(config: BrokerConfig, options: "Mapping[str, str]", now_ms: Callable[[], int]) -> "BearerTokens":
    from ottla.security.bearer import BearerTokens  # few clusters need it

    return BearerTokens(config, options, now_ms)
