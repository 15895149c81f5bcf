"""Bearer tokens of OAUTHBEARER: given as they are, read from a file, or asked of a token endpoint (OAuth 2.0).

A file is read and an endpoint is asked whenever a connection authenticates, unless the last token is still good. So a
token can be renewed without a restart. A token, a secret and the content of a file are in no message.
"""

import json
import ssl
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from ottla.client.backoff import now_ms

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
TOKEN: Final = "sasl.oauthbearer.token"

_TOKEN_BYTES_MAX: Final = 256 * 1024
_ENDPOINT_TIMEOUT_S: Final = 10.0
_EARLY_S: Final = 30.0
"""A token that ends so soon is not used any more."""
_UNKNOWN_LIFE_S: Final = 300.0


class TokenError(ValueError):
    """There is no token. The message says why, without any secret."""


@dataclass(slots=True)
class TokenSource:
    token: str = field(default="", repr=False)
    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = field(default=None, compare=False)
    _last: tuple[str, float] | None = field(default=None, repr=False, compare=False)

    def find_token(self) -> tuple[str, float]:
        """A token, and when it ends (seconds since 1970). TokenError if there is none."""
        if self.token:
            return self.token, find_expiry(self.token)
        if urlsplit(self.url).scheme == "file":
            token = self._read_file()
            return token, find_expiry(token)
        if self._last is None or self._last[1] - _EARLY_S <= (now_ms() / 1000):
            self._last = self._ask_endpoint()
        return self._last

    def _read_file(self) -> str:
        path = unquote(urlsplit(self.url).path)
        try:
            with open(path, encoding="ascii") as file:
                token = file.read(_TOKEN_BYTES_MAX).strip()
        except OSError as error:
            raise TokenError(f"{ENDPOINT}: {path}: {error.strerror or error}") from None
        except ValueError:
            token = ""
        _check_token(token, f"{ENDPOINT}: {path} has no token")
        return token

    def _ask_endpoint(self) -> tuple[str, float]:
        from urllib.error import HTTPError, URLError  # they take longer to import than most commands run
        from urllib.request import Request, urlopen

        host = urlsplit(self.url).netloc.rpartition("@")[2]
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        login = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}"
        request = Request(
            self.url,
            urlencode(form).encode(),
            {
                "Authorization": f"Basic {b64encode(login.encode()).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        try:
            with urlopen(request, timeout=_ENDPOINT_TIMEOUT_S, context=self.context) as answer:
                document = json.loads(answer.read(_TOKEN_BYTES_MAX))
        except HTTPError as error:
            with error:
                raise TokenError(f"the token endpoint {host} refused the client: HTTP status {error.code}") from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise TokenError(f"the token endpoint {host} does not answer: {reason}") from None
        except ValueError:
            raise TokenError(f"the token endpoint {host} did not answer with JSON") from None
        token = str(document.get("access_token") or "") if isinstance(document, dict) else ""
        _check_token(token, f"the token endpoint {host} did not answer with a token")
        lifetime = document.get("expires_in")
        if isinstance(lifetime, int | float) and lifetime > 0:
            return token, (now_ms() / 1000) + lifetime
        return token, find_expiry(token)


def _check_token(token: str, message: str) -> None:
    """A token has no blanks and no control characters, which would end the message that carries it."""
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise TokenError(message)


def find_expiry(token: str) -> float:
    """When a JWT says that it ends. Other tokens are taken to last for a few minutes: only the broker knows."""
    parts = token.split(".")
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return (now_ms() / 1000) + _UNKNOWN_LIFE_S


def read_token_source(settings: Mapping[str, str]) -> TokenSource:
    """From settings with librdkafka's names. ValueError, which names the setting, if one is missing or wrong."""
    extensions = _read_extensions(settings.get("sasl.oauthbearer.extensions", ""))
    if settings.get(TOKEN):
        _check_token(settings[TOKEN], f"{TOKEN}: it is not a token")
        return TokenSource(token=settings[TOKEN], extensions=extensions)
    url = settings.get(ENDPOINT, "").strip()
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return TokenSource(url=url, extensions=extensions)
    if scheme not in ("http", "https"):
        raise ValueError(f"{ENDPOINT}: OAUTHBEARER needs it (https://... or file:///...), or {TOKEN}")
    client_id = settings.get("sasl.oauthbearer.client.id", "")
    if not client_id:
        raise ValueError("sasl.oauthbearer.client.id: a token endpoint asks for it")
    return TokenSource(
        "",
        url,
        client_id,
        settings.get("sasl.oauthbearer.client.secret", ""),
        settings.get("sasl.oauthbearer.scope", ""),
        extensions,
        _make_https_context(settings) if scheme == "https" else None,
    )


def _make_https_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(
            cafile=settings.get("https.ca.location") or None, cadata=settings.get("https.ca.pem") or None
        )
    except OSError as error:
        raise ValueError(f"https.ca.location: {error.strerror or error}") from None


def _read_extensions(text: str) -> dict[str, str]:
    found = {}
    for part in text.split(","):
        if part.strip():
            name, equals, value = part.partition("=")
            if not equals or not name.strip().isalpha() or name.strip() == "auth" or not value.isprintable():
                raise ValueError("sasl.oauthbearer.extensions: it is not name=value,name=value")
            found[name.strip()] = value.strip()
    return found
