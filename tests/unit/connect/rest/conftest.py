"""A REST server before a worker in memory, and a client that shows what it is answered."""

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.connect.rest.listeners import read_rest_options
from ottla.connect.rest.server import RestServer
from tests.patience import PATIENCE_S
from tests.unit.connect.rest.herders import HerderInMemory, make_plugins


class RestClient:
    def __init__(self, ports: Sequence[int], herder: HerderInMemory) -> None:
        self.ports = ports
        self.port = ports[0]
        self.herder = herder

    def send(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, document (or text) and headers. A body is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            content = json.dumps(body).encode() if body is not None else raw
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            if body is not None:
                given.setdefault("Content-Type", "application/json")
            connection.request(method, path, content, given)
            answer = connection.getresponse()
            text = answer.read().decode()
            found = {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()
        is_json = text and found.get("content-type") == "application/json"
        return answer.status, json.loads(text) if is_json else text, found

    def create(self, name: str, **settings: str) -> None:
        config = {"connector.class": "FileStreamSource", "topic": "t", **settings}
        assert self.send("POST", "/connectors", {"name": name, "config": config})[0] == 201


@contextmanager
def serve(properties: Mapping[str, str]) -> Iterator[RestClient]:
    """A server with these properties of its worker."""
    server = RestServer(read_rest_options({"listeners": "http://127.0.0.1:0", **properties}))
    plugins = make_plugins(properties)
    herder = HerderInMemory(plugins)
    server.start(herder, plugins)
    try:
        yield RestClient(server.ports, herder)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def shared_client() -> Iterator[RestClient]:
    with serve({}) as made:
        yield made


@pytest.fixture
def client(shared_client: RestClient) -> RestClient:
    """Of a worker without connectors."""
    shared_client.herder.clear()
    return shared_client
