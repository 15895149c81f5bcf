"""A schema registry for tests: a real HTTP server that answers from a shelf of schemas."""

import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from google.protobuf import descriptor_pb2

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
}
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": {"type": "array", "items": "int"}}]}
SHOP = {"type": "object", "properties": {"id": {"type": "integer"}}}


def proto(name: str, package: str, *fields: tuple[str, int, str], imports: tuple[str, ...] = ()) -> str:
    """A Protobuf file with one message `name`, in base64. A field is text, or a message given by its type's name."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="x", package=package, syntax="proto3", dependency=imports)
    message = file.message_type.add(name=name)
    for field, number, type_name in fields:
        added = message.field.add(name=field, number=number, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
        if type_name:
            added.type, added.type_name = kind.TYPE_MESSAGE, type_name
    return b64encode(file.SerializeToString()).decode()


class Shelf:
    """The answers of the registry, and the requests that it got."""

    def __init__(self) -> None:
        customer = {"schemaType": "PROTOBUF", "schema": proto("Customer", "shop", ("name", 1, ""))}
        order = {
            "schemaType": "PROTOBUF",
            "schema": proto("Order", "shop", ("customer", 1, ".shop.Customer"), imports=("customer.proto",)),
            "references": [{"name": "customer.proto", "subject": "customers", "version": 1}],
        }
        self.answers: dict[str, dict[str, Any]] = {
            "/schemas/ids/1": {"schema": json.dumps(V1)},
            "/schemas/ids/2": {"schema": json.dumps(V2)},
            "/schemas/ids/3": {"schema": json.dumps(OTHER)},
            "/schemas/ids/4": {"schemaType": "JSON", "schema": json.dumps(SHOP)},
            "/schemas/ids/5": order,
            "/subjects/orders-value/versions/latest": {"schema": json.dumps(V2), "id": 2},
            "/subjects/shop-value/versions/latest": {"schemaType": "JSON", "schema": json.dumps(SHOP), "id": 4},
            "/subjects/proto-value/versions/latest": {**order, "id": 5},
            "/subjects/customers/versions/1": customer,
        }
        self.asked: list[str] = []
        self.authorization: list[str | None] = []
        self.failing = False

    def find(self, path: str, schema: dict[str, Any]) -> int | None:
        """The id of the newest schema of the subject at `path`, if it is this one."""
        latest = self.answers.get(f"{path}/versions/latest", {})
        return latest.get("id") if latest.get("schema") == schema["schema"] else None

    def register(self, path: str, schema: dict[str, Any]) -> int:
        """The id of the schema: a new one if it is not yet the newest of the subject, whose versions are at `path`."""
        latest = self.answers.get(f"{path}/latest", {})
        if latest.get("schema") == schema["schema"]:
            return int(latest["id"])
        number = 1 + sum(name.startswith("/schemas/ids/") for name in self.answers)
        self.answers[f"/schemas/ids/{number}"] = schema
        self.answers[f"{path}/latest"] = {**schema, "id": number}
        return number


@contextmanager
def served(shelf: Shelf) -> Iterator[str]:
    """Serve the shelf. Returns the registry's address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            shelf.asked.append(path)
            shelf.authorization.append(self.headers["Authorization"])
            answer = shelf.answers.get(path)
            if answer is not None and answer.get("schemaType") == "PROTOBUF" and query != "format=serialized":
                answer = {**answer, "schema": "message Order {}"}
            status = 500 if shelf.failing else 200 if answer else 404
            self._answer(status, answer or {"error_code": 40403, "message": "Schema not found"})

        def do_POST(self) -> None:
            shelf.authorization.append(self.headers["Authorization"])
            schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_new = self.path.endswith("/versions")
            number = shelf.register(self.path, schema) if is_new else shelf.find(self.path, schema)
            unknown = {"error_code": 40403, "message": "Schema not found"}
            self._answer(404 if number is None else 200, unknown if number is None else {"id": number})

        def _answer(self, status: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def framed(number: int, value: bytes) -> bytes:
    return b"\0" + struct.pack(">i", number) + value
