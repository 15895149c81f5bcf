"""SASL PLAIN (RFC 4616): the client sends its name and password, `[authorization id] NUL name NUL password`."""

import hashlib
import hmac
from collections.abc import Mapping

from ottla.security.failure import AuthenticationFailed

USER_OPTION = "user_"
REFUSAL = "Authentication failed: Invalid username or password"


def read_users(options: Mapping[str, str]) -> dict[str, str]:
    """The users in the options of a login module: `user_alice="secret"` is alice."""
    return {name[len(USER_OPTION) :]: password for name, password in options.items() if name.startswith(USER_OPTION)}


def authenticate(message: bytes, users: Mapping[str, str]) -> str:
    """The name of the user. Takes the same time whether the user exists or not."""
    try:
        authorization, name, password = bytes(message).decode().split("\0")
    except ValueError:  # UnicodeDecodeError is one
        raise AuthenticationFailed("Invalid SASL/PLAIN response: expected three values, separated by NUL") from None
    if not name:
        raise AuthenticationFailed("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("Authentication failed: password not specified")
    known = users.get(name)
    is_right = hmac.compare_digest(_hash(password), _hash("" if known is None else known))
    if known is None or not is_right:
        raise AuthenticationFailed(REFUSAL)
    if authorization not in ("", name):  # or one user could act as another: CVE-2017-12610
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return name


def _hash(text: str) -> bytes:
    """Digests of equal size: the comparison does not tell how long the password is."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
