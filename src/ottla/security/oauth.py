"""SASL OAUTHBEARER (RFC 7628): the client shows a token that an OAuth provider has signed (a JWT).

The client sends `n,,^Aauth=Bearer <token>^A^A`, where ^A is the byte 1. A token that is not accepted is answered with a
JSON object, and the authentication fails with the client's next message. PyJWT checks the signature, with a public key
of the provider and an algorithm of that key's type; times, issuer and audience are checked here, by the broker's clock.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ottla.config import BrokerConfig
from ottla.security.failure import AuthenticationFailed
from ottla.security.key_sets import ALGORITHMS, KeySet
from ottla.security.principal import Principal
from ottla.security.sasl import Identity
from ottla.system.threads import Offload

TOKEN_CHARS_MAX = 65_536

_FIRST = re.compile(
    rb"n,(?:a=((?:[^\x00\x01=,]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01", re.DOTALL
)
_BEARER = re.compile(r"(?i:bearer) +([-_.A-Za-z0-9]+=*)")


class OAuthValidator:
    """A `TokenValidator` of `security/sasl.py`."""

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        offload: Offload,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`options` are those of the login module of the listener."""
        self._keys = KeySet(config, now_ms, offload, options)
        self._now_ms = now_ms
        self._issuer = config.sasl_oauthbearer_expected_issuer
        self._audiences = frozenset(config.sasl_oauthbearer_expected_audience)
        self._skew_s = config.sasl_oauthbearer_clock_skew_seconds
        self._user_claim = config.sasl_oauthbearer_sub_claim_name
        self._scope_claim = config.sasl_oauthbearer_scope_claim_name

    async def authenticate(self, message: bytes) -> Identity:
        authorization, token = read_first_message(message)
        try:
            claims = await self._verify(token)
            identity = self._check(claims)
        except _Refused as refusal:
            raise AuthenticationFailed(
                '{"status":"invalid_token"}',
                f"OAUTHBEARER: {refusal}",
                json.dumps({"status": "invalid_token"}).encode(),
            ) from None
        if authorization not in ("", identity.principal.name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return identity

    async def _verify(self, token: str) -> dict[str, Any]:
        """The claims of a token, if its signature is right."""
        import jwt  # large, and needed by few brokers

        try:
            header = jwt.get_unverified_header(token)
            key_id = header.get("kid")
            key = await self._keys.find(key_id if isinstance(key_id, str) else None)
            if key is None:
                raise _Refused("no key of the provider has signed it")
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS.get(key.key_type or "", ()):  # never "none", never HS256
                raise _Refused(f"the algorithm {str(algorithm)[:20]!r} is not one of the key")
            options: Any = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
            options["verify_signature"] = True
            claims: dict[str, Any] = jwt.decode(token, key.key, algorithms=[algorithm], options=options)
            return claims
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise _Refused(f"{type(error).__name__}") from None

    def _check(self, claims: dict[str, Any]) -> Identity:
        now_s = self._now_ms() / 1000
        expires: Any = claims.get("exp")
        issued, begins = claims.get("iat"), claims.get("nbf")
        if not _is_time(expires) or not _is_time(issued) or not (begins is None or _is_time(begins)):
            raise _Refused("exp or iat is missing, or not a time")
        if now_s >= expires + self._skew_s:
            raise _Refused("it has expired")
        if any(each is not None and each > now_s + self._skew_s for each in (issued, begins)):
            raise _Refused("it is not valid yet")
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise _Refused("it has another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if self._audiences and not any(isinstance(each, str) and each in self._audiences for each in audiences):
            raise _Refused("it has another audience")
        scope = claims.get(self._scope_claim)
        if not (
            scope is None
            or isinstance(scope, str)
            or (isinstance(scope, list) and all(isinstance(each, str) for each in scope))
        ):
            raise _Refused("its scope is neither text nor a list")
        name = claims.get(self._user_claim)
        if not isinstance(name, str) or not name.strip():
            raise _Refused(f"it has no {self._user_claim}")
        return Identity(Principal("User", name.strip()), int(expires * 1000))


class _Refused(Exception):
    """Why a token is not accepted, for the log. The client is not told."""


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e11


def read_first_message(message: bytes) -> tuple[str, str]:
    """The authorization id, which may be empty, and the token."""
    match = _FIRST.fullmatch(bytes(message))
    if match is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.decode("latin-1").split("=", 1) for pair in match[2].split(b"\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None or len(bearer[1]) > TOKEN_CHARS_MAX:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message: there is no bearer token")
    try:
        authorization = (match[1] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message") from None
    return authorization, bearer[1]
