"""What a broker asks an OAuth provider for over http: its keys, and tokens for itself.

Only URLs of sasl.oauthbearer.allowed.urls are asked (CVE-2025-27817). Redirects are not followed, and an answer has a
limit. Public authorities are trusted for https, or those of the options ssl.truststore.* of the login module, as in
Kafka.
"""

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ottla.config import BrokerConfig, ConfigError
from ottla.security.tls import TlsContext, build_client_context

if TYPE_CHECKING:
    from urllib.request import BaseHandler

ANSWER_BYTES_MAX = 1 << 20
TIMEOUT_S = 10.0


class Provider:
    """One URL of a provider."""

    def __init__(self, setting: str, url: str | None, config: BrokerConfig, options: Mapping[str, str]) -> None:
        """`options` are those of the login module. ConfigError names the setting if the URL may not be asked."""
        if not url:
            raise ConfigError(f"{setting}: OAUTHBEARER needs it, a file: or https: URL")
        if url not in config.sasl_oauthbearer_allowed_urls:
            raise ConfigError(f"{setting}: {url} is not among sasl.oauthbearer.allowed.urls")
        if not url.startswith(("https://", "http://", "file:/")):
            raise ConfigError(f"{setting}: {url} is not a file: or https: URL")
        self.url = url
        self._timeout_s = (config.sasl_login_read_timeout_ms or TIMEOUT_S * 1000) / 1000
        self._context = read_https_context(options) if url.startswith("https:") else None

    @property
    def is_file(self) -> bool:
        return self.url.startswith("file:")

    @property
    def host(self) -> str:
        """Where it is, without a password that the URL may have."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def ask(self, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        """The answer. OSError or ValueError if there is none. It waits for a file or a server: call it in a thread."""
        handlers: list[BaseHandler] = [_NoRedirects()]
        if self._context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._context))
        request = urllib.request.Request(self.url, form, dict(headers or {}))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=self._timeout_s) as answer:
                data: bytes = answer.read(ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"HTTP status {error.code}") from None
        if len(data) > ANSWER_BYTES_MAX:
            raise ValueError(f"more than {ANSWER_BYTES_MAX} bytes")
        return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def read_https_context(options: Mapping[str, str]) -> TlsContext | None:
    """TLS as the options ssl.* of the login module say; None if there are none."""
    given = {name: value for name, value in options.items() if name.startswith("ssl.")}
    return build_client_context(BrokerConfig.of(given), "sasl.jaas.config: ") if given else None
