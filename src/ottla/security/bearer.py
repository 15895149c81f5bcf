"""The tokens by which this broker enters others with OAUTHBEARER: from a file, or from a token endpoint (OAuth 2.0).

A file (sasl.oauthbearer.token.endpoint.url=file:/...) is read at each login. An endpoint is asked with the client id
and secret of this broker (grant type client_credentials), unless its last token is good for a while. No token and no
secret is in any message.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

from ottla.config import BrokerConfig, ConfigError
from ottla.security.failure import AuthenticationFailed
from ottla.security.providers import Provider

SETTING = "sasl.oauthbearer.token.endpoint.url"
EARLY_MS = 30_000
"""A token that ends so soon is not shown any more."""


class BearerTokens:
    def __init__(self, config: BrokerConfig, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """`options` are those of the login module, which older versions of Kafka have id and secret in."""
        self._provider = Provider(SETTING, config.sasl_oauthbearer_token_endpoint_url, config, options)
        self._now_ms = now_ms
        self._client_id = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
        self._client_secret = config.sasl_oauthbearer_client_credentials_client_secret or options.get(
            "clientSecret", ""
        )
        self._scope = config.sasl_oauthbearer_scope or options.get("scope", "")
        self._last: tuple[str, int] = "", 0
        if not self._provider.is_file and not (self._client_id and self._client_secret):
            names = "sasl.oauthbearer.client.credentials.client.id and .client.secret"
            raise ConfigError(f"{names}: a token endpoint asks for both")

    def find(self) -> str:
        """A token. It waits for a file or a server: call it in a thread. AuthenticationFailed if there is none."""
        if self._provider.is_file:
            return _check(self._ask().decode("ascii", "replace").strip(), self._provider.url)
        token, ends_at_ms = self._last
        if ends_at_ms - EARLY_MS <= self._now_ms():
            token, seconds = self._ask_endpoint()
            self._last = token, self._now_ms() + int(seconds * 1000)
        return token

    def _ask_endpoint(self) -> tuple[str, float]:
        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        login = f"{quote(self._client_id, safe='')}:{quote(self._client_secret, safe='')}"
        headers = {
            "Authorization": f"Basic {b64encode(login.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        try:
            answer = json.loads(self._ask(urlencode(form).encode(), headers))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise AuthenticationFailed(f"the token endpoint {self._provider.host} did not answer with JSON")
        lifetime = answer.get("expires_in")
        seconds = float(lifetime) if isinstance(lifetime, int | float) and 0 < lifetime < 1e9 else 0.0
        return _check(str(answer.get("access_token") or ""), f"the token endpoint {self._provider.host}"), seconds

    def _ask(self, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        try:
            return self._provider.ask(form, headers)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            where = self._provider.url if self._provider.is_file else f"the token endpoint {self._provider.host}"
            raise AuthenticationFailed(f"there is no token: {where}: {reason}") from None


def _check(token: str, source: str) -> str:
    """A token has no blanks and no control characters, which would end the message that carries it."""
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise AuthenticationFailed(f"{source} has no token")
    return token
