"""franz-go: the program in `go/`, built once into the project's cache, run anew for each call."""

import functools
import hashlib
import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients import logins
from tests.clients.messages import Delivery, Sent
from tests.patience import PATIENCE_S

SOURCE = Path(__file__).parent / "go"
CACHE = Path(__file__).parents[2] / ".cache" / "go-client"
BUILD_S = 120.0
NULL_HEADERS = True


class Unavailable(Exception):
    """Go is not installed, or its modules cannot be downloaded. The message says which."""


@functools.cache
def explain_missing() -> str:
    """Why the client cannot run; empty if it can. The first call builds it."""
    try:
        build_program()
    except Unavailable as reason:
        return str(reason)
    return ""


def build_program() -> Path:
    """The path of the program, which is built if its source has changed. If two test runs build at once, one result is
    used."""
    digest = hashlib.sha256()
    for source in sorted(SOURCE.iterdir()):
        digest.update(source.read_bytes())
    built = CACHE / digest.hexdigest()[:16]
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise Unavailable("go is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = CACHE / f"{built.name}.{os.getpid()}"
    command = [go, "build", "-mod=readonly", "-o", str(partial), "."]
    try:
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"go did not build the client within {BUILD_S:.0f} s") from None
    if done.returncode != 0:
        raise Unavailable(f"go cannot build the client: {done.stderr.strip()[-500:]}")
    partial.replace(built)
    return built


def send(bootstrap: str, topic: str, messages: Sequence[Sent], delivery: Delivery) -> None:
    told = [
        {
            "Partition": message.partition,
            "Key": _text(message.key),
            "Value": _text(message.value),
            "Headers": [{"Name": name, "Value": _text(value)} for name, value in message.headers],
            "Timestamp": message.timestamp,
        }
        for message in messages
    ]
    run(
        "send",
        **logins.franz(bootstrap),
        Bootstrap=bootstrap,
        Topic=topic,
        Codec=delivery.codec,
        Idempotent=delivery.idempotent,
        Acks=delivery.acks,
        Messages=told,
    )


def receive(bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
    return [
        Sent(
            message["Partition"],
            _bytes(message["Key"]),
            _bytes(message["Value"]),
            tuple((header["Name"], _bytes(header["Value"])) for header in message["Headers"]),
            message["Timestamp"],
        )
        for message in run(
            "receive", **logins.franz(bootstrap), Bootstrap=bootstrap, Topic=topic, Partitions=partitions, Count=count
        )
    ]


def run(job: str, **order: Any) -> Any:
    """Run one job, as main.go describes them, and return its answer."""
    done = subprocess.run(
        [build_program(), job], input=json.dumps(order), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _text(part: bytes | None) -> str | None:
    return None if part is None else b64encode(part).decode()


def _bytes(part: str | None) -> bytes | None:
    return None if part is None else b64decode(part)
