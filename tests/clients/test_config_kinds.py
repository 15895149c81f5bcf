"""`ottla config` for every kind of resource, on our broker and on Apache Kafka: list, get, set and delete."""

import json
from typing import Any

import pytest

from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.testing import LocalBroker
from tests.clients.test_command_line import Commands, SameProcess
from tests.patience import ask_now_and_then

KINDS = [
    # kind, name or --default, setting, value, source, a value that is refused
    ("topic", "kinds", "retention.ms", "5000000", "dynamic-topic", "soon"),
    ("broker", "1", "log.cleaner.threads", "2", "dynamic-broker", "none"),
    ("broker", "--default", "log.cleaner.threads", "2", "dynamic-default-broker", "none"),
    ("group", "kinds", "consumer.session.timeout.ms", "50000", "group", "soon"),
    ("user", "alice", "producer_byte_rate", "10485760", "dynamic-user", "fast"),
    ("user", "--default", "request_percentage", "500", "dynamic-user", "fast"),
    ("client", "etl", "consumer_byte_rate", "1234567", "dynamic-client", "fast"),
    ("client", "--default", "controller_mutation_rate", "12.5", "dynamic-client", "fast"),
    ("ip", "127.0.0.1", "connection_creation_rate", "1000", "dynamic-ip", "fast"),
    ("ip", "--default", "connection_creation_rate", "1000", "dynamic-ip", "fast"),
    ("client-metrics", "kinds", "interval.ms", "60000", "client-metrics", "soon"),
]


def use_kind(ottla: Commands, case: tuple[str, ...], *, is_late: bool = False) -> None:
    """Set, get, list and delete one setting; a wrong name and a wrong value are refused in one line. A broker that is
    late shows a change some time after it has acknowledged it."""

    kind, name, setting, value, source, wrong = case

    def ask(action: str, *words: str) -> Any:
        return json.loads(ottla("config", action, kind, *words, "--format", "json"))

    listed = "<default>" if name == "--default" else name

    def settle(*, is_set: bool) -> None:
        for _ in ask_now_and_then(lambda: f"{setting} of {kind} {name} does not change"):
            row = {"name": listed, "setting": setting, "value": value}
            if not is_late or (row in ask("list")) == is_set:
                return

    ottla("config", "set", kind, name, f"{setting}={value}", "--dry-run")
    assert [listed, setting, value] not in [[*row.values()] for row in ask("list")]
    assert f"{setting} changed\n".encode() in ottla("config", "set", kind, name, f"{setting}={value}")
    settle(is_set=True)
    (found,) = ask("get", name, setting)
    assert (found["name"], found["value"], found["source"], found["changed"]) == (setting, value, source, True)
    assert setting in [row["name"] for row in ask("get", name, "--changed")]
    assert {"name": listed, "setting": setting, "value": value} in ask("list")
    for assignment in (f"{setting}={wrong}", f"{setting}x={value}"):
        ended = ottla.ended("config", "set", kind, name, assignment)
        assert ended.returncode in (1, 2), ended
        assert ended.stderr.startswith(b"ottla: ")
        assert ended.stderr.count(b"\n") == 1
        assert b"internal" not in ended.stderr
    ended = ottla.ended("config", "get", kind, name, f"{setting}x")
    assert (ended.returncode, b"did you mean" in ended.stderr) == (1, True), ended.stderr
    ottla("config", "delete", kind, name, setting)
    settle(is_set=False)
    assert [listed, setting, value] not in [[*row.values()] for row in ask("list")]
    ottla("config", "set", kind, name, f"{setting}={value}")
    settle(is_set=True)
    ottla("config", "delete", kind, name, "--all")
    settle(is_set=False)
    left = [row["setting"] for row in ask("list") if row["name"] == listed]
    assert left == (["min.insync.replicas"] if (kind, name) == ("broker", "--default") else [])
    assert b"nothing was set" in ottla("config", "delete", kind, name, "--all")


def use_loggers(ottla: Commands) -> None:
    def read() -> dict[str, str]:
        rows = json.loads(ottla("config", "get", "broker-logger", "1", "--format", "json"))
        return {row["name"]: row["value"] for row in rows}

    levels = read()
    logger = next((name for name in levels if name.startswith("ottla.")), "root")  # that Kafka logs nothing
    before = levels[logger]
    ottla("config", "set", "broker-logger", "1", f"{logger}=TRACE")
    assert read()[logger] == "TRACE"
    rows = json.loads(ottla("config", "list", "broker-logger", "--format", "json"))
    assert {"name": "1", "setting": logger, "value": "TRACE"} in rows
    if logger == "root":  # has no logger above it whose level it could take
        assert ottla.ended("config", "delete", "broker-logger", "1", logger).returncode == 1
        ottla("config", "set", "broker-logger", "1", f"{logger}={before}")
    else:
        ottla("config", "delete", "broker-logger", "1", logger)
    assert read()[logger] == before
    assert ottla.ended("config", "set", "broker-logger", "1", f"{logger}=LOUD").returncode == 1
    assert ottla.ended("config", "get", "broker-logger", "1", f"{logger}x").returncode == 1
    ended = ottla.ended("config", "get", "broker-logger", "9")
    assert (ended.returncode, b"there is no broker 9" in ended.stderr) == (1, True)


@pytest.mark.parametrize("case", KINDS, ids=lambda case: f"{case[0]} {case[1]}")
def test_our_broker(broker: LocalBroker, case: tuple[str, ...]) -> None:
    ottla = SameProcess(broker.bootstrap)
    ottla("topic", "create", "kinds", "--if-not-exists")
    use_kind(ottla, case)


def test_loggers_of_our_broker(broker: LocalBroker) -> None:
    use_loggers(SameProcess(broker.bootstrap))


def test_apache_kafka(apache_kafka: ApacheKafka) -> None:
    ottla = SameProcess(apache_kafka.bootstrap)
    ottla("topic", "create", "kinds")
    for case in KINDS:
        use_kind(ottla, case, is_late=True)
    use_loggers(ottla)
    ottla("topic", "delete", "kinds")
