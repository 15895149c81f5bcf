"""Who may use the console: a token or password that is asked once, and the cookie that remembers it.

The cookie is an expiry time with its keyed digest, so there are no sessions to keep. Its key is made anew at every
start. Wrong attempts are limited over all clients together, since one attacker may have many addresses.
"""

import hmac
from collections import deque
from collections.abc import Callable
from hashlib import sha256

COOKIE = "ottla_console"
SESSION_S = 12 * 3_600
ATTEMPTS_MAX = 10
ATTEMPTS_S = 60.0


class TooManyAttempts(Exception):
    """Too many wrong tokens within a minute."""


class Login:
    def __init__(self, secret: str, key: bytes, now_ms: Callable[[], int]) -> None:
        """`secret` is the token or password; `key` is random."""
        self._secret = secret
        self._key = key
        self._now_ms = now_ms
        self._failures: deque[float] = deque(maxlen=ATTEMPTS_MAX)

    def accepts(self, given: str) -> bool:
        """Whether this is the token. Raises TooManyAttempts."""
        now_s = self._now_ms() / 1000
        if len(self._failures) == ATTEMPTS_MAX and now_s - self._failures[0] < ATTEMPTS_S:
            raise TooManyAttempts
        if hmac.compare_digest(given.encode(errors="replace"), self._secret.encode(errors="replace")):
            return True
        self._failures.append(now_s)
        return False

    def make_cookie(self) -> str:
        expiry = str(self._now_ms() // 1000 + SESSION_S)
        return f"{expiry}.{self._sign(expiry)}"

    def knows_cookie(self, cookie: str) -> bool:
        expiry, _, signature = cookie.partition(".")
        if not expiry.isdecimal() or len(expiry) > 12 or not signature.isascii():
            return False
        return hmac.compare_digest(signature, self._sign(expiry)) and int(expiry) > self._now_ms() // 1000

    def _sign(self, expiry: str) -> str:
        return hmac.new(self._key, expiry.encode(), sha256).hexdigest()
