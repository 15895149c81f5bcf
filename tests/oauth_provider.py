"""An OAuth provider for the tests, over https: its keys (JWKS), and tokens for clients that know their secret."""

import json
import ssl
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.clients.secured import Certificates

ISSUER, AUDIENCE = "https://provider.example", "kafka"
LIFE_S = 3600


class OAuthProvider:
    def __init__(self) -> None:
        self.clients: dict[str, str] = {}
        """Client id, which is also the name of the user -> secret."""
        self.life_s = LIFE_S
        self.is_away = False
        """Whether it answers everything with an error, as a provider that is overloaded."""
        self.asked = {"/keys": 0, "/token": 0}
        self.url = ""
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.rotate()

    @property
    def keys_url(self) -> str:
        return f"{self.url}/keys"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def rotate(self) -> None:
        """Sign with a new key from now on. Tokens that were signed with another one are not good any more."""
        name = f"key-{len(self._keys)}-{time.monotonic_ns()}"
        self._keys = {name: ec.generate_private_key(ec.SECP256R1())}

    def sign(self, user: str, **claims: Any) -> str:
        ((name, key),) = self._keys.items()
        now = int(time.time())
        content = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + self.life_s, **claims}
        return jwt.encode(content, key, "ES256", headers={"kid": name})

    def write_keys(self) -> str:
        found = [
            {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"}
            for name, key in self._keys.items()
        ]
        return json.dumps({"keys": found})

    def grant(self, authorization: str) -> str | None:
        """The answer of the token endpoint; None if the client does not know its secret."""
        kind, _, login = authorization.partition(" ")
        name, _, secret = b64decode(login).decode().partition(":") if kind == "Basic" else ("", "", "")
        name, secret = unquote(name), unquote(secret)
        if not secret or self.clients.get(name) != secret:
            return None
        return json.dumps({"access_token": self.sign(name), "token_type": "Bearer", "expires_in": self.life_s})


def _make_handler(provider: OAuthProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(provider.write_keys() if self.path == "/keys" else None, 404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            granted = provider.grant(self.headers.get("Authorization", "")) if self.path == "/token" else None
            self._answer(granted, 401)

        def _answer(self, text: str | None, refusal: int) -> None:
            provider.asked[self.path] = provider.asked.get(self.path, 0) + 1
            status = 503 if provider.is_away else refusal if text is None else 200
            data = (text if status == 200 and text else '{"error":"invalid_client"}').encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Nothing: tests read what is printed."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: OAuthProvider, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(("127.0.0.1", 0), _make_handler(provider))

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:  # the handshake is in the thread of the request
            with self._context.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)
        except OSError:
            return  # a client that does not trust the certificate, or that has left


@contextmanager
def run_provider(certificates: Certificates) -> Iterator[OAuthProvider]:
    provider = OAuthProvider()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker("provider"))
    server = _Server(provider, context)
    provider.url = f"https://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
