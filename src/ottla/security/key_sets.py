"""The keys of an OAuth provider (JWKS), from a file or an https URL that the settings allow.

Keys are fetched again after a while, and when a token names a key that is not among them, but not more often than the
pause after a failure: whoever sends tokens cannot make the broker ask the provider all the time. The last keys stay
while new ones cannot be had.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.config import BrokerConfig, ConfigError
from ottla.security.providers import Provider
from ottla.system.threads import Offload

if TYPE_CHECKING:
    from jwt import PyJWK

KEYS_MAX = 1000
UNKNOWN_KEY_PAUSE_S = 10.0
SETTING = "sasl.oauthbearer.jwks.endpoint.url"

ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Type of a key -> what it may sign with. A secret key ("oct") is none of a provider: with it a client could sign a
token by the text of a public key."""

logger = logging.getLogger(__name__)


class KeySet:
    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        offload: Offload,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """A file is read now, so call it in a thread. ConfigError if the URL is not allowed.

        `options` are those of the login module: ssl.* of https.
        """
        self._provider = Provider(SETTING, config.sasl_oauthbearer_jwks_endpoint_url, config, options or {})
        self._now_ms = now_ms
        self._offload = offload
        self._refresh_ms = config.sasl_oauthbearer_jwks_endpoint_refresh_ms
        self._pause_ms = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms
        self._pause_ms_max = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at_ms: int | None = None
        self._next_at_ms = 0
        self._failures = 0
        self._fetching: asyncio.Future[Any] | None = None
        if self._provider.is_file:
            try:
                self._take(self._fetch())
            except (OSError, ValueError) as error:
                raise ConfigError(f"{SETTING}: {self._provider.url}: {error}") from None

    async def find(self, key_id: str | None) -> "PyJWK | None":
        """The key with this id, or the only key if a token names none."""
        now = self._now_ms()
        age_ms = None if self._fetched_at_ms is None else now - self._fetched_at_ms
        if age_ms is None or age_ms >= self._refresh_ms or (key_id is not None and key_id not in self._keys):
            await self._refresh()
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def _refresh(self) -> None:
        if self._fetching is None:
            if self._now_ms() < self._next_at_ms:
                return
            self._fetching = self._offload(self._fetch)
            self._fetching.add_done_callback(self._handle_fetched)
        await asyncio.wait([self._fetching])

    def _handle_fetched(self, done: "asyncio.Future[Any]") -> None:
        self._fetching = None
        now = self._now_ms()
        try:
            self._take(done.result())
            self._failures, self._next_at_ms = 0, now + int(UNKNOWN_KEY_PAUSE_S * 1000)
        except (OSError, ValueError, asyncio.CancelledError) as error:
            self._failures += 1
            self._next_at_ms = now + min(self._pause_ms << min(self._failures, 20), self._pause_ms_max)
            logger.error("the keys of the OAuth provider stay as they are: %s: %s", self._provider.url, error)

    def _fetch(self) -> bytes:
        """The text of the key set. It waits for a file or a server: call it in a thread."""
        return self._provider.ask()

    def _take(self, data: bytes) -> None:
        from jwt import PyJWK, PyJWTError

        try:
            listed = json.loads(data)["keys"]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise ValueError("it is no JSON Web Key Set") from None
        keys: dict[str, PyJWK] = {}
        for number, item in enumerate(listed[:KEYS_MAX] if isinstance(listed, list) else ()):
            try:
                if item["kty"] in ALGORITHMS and item.get("use", "sig") == "sig":
                    keys[str(item.get("kid", f"\0{number}"))] = PyJWK.from_dict(item, item.get("alg"))
            except (PyJWTError, KeyError, TypeError, AttributeError, ValueError):
                continue  # a key of a kind that nobody here knows
        if not keys:
            raise ValueError("it has no public key")
        self._keys, self._fetched_at_ms = keys, self._now_ms()
