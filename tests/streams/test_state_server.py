"""State servers as processes, with a broker: what they hold is the changelog up to the offset that a request names."""

import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ottla.streams.errors import StreamsError
from ottla.streams.state.client import StateClient, StateRefused, StateUnavailable
from ottla.streams.state.protocol import StateAhead
from ottla.streams.state.starting import ServerProcess
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.streams.changelogs import TOKEN, TOPIC, Changelog, plan_store, run_server

pytestmark = pytest.mark.ottla(process=True)


def test_a_read_sees_exactly_what_is_before_its_offset(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # Two transactions, an aborted one between them. Each read names the end of one of them.
    ottla_broker.create_topic(TOPIC, cleanup_policy="compact")
    changelog = Changelog(ottla_broker)
    first = changelog.write({b"a": b"1", b"b": b"1"})
    aborted = changelog.write({b"a": b"aborted"}, commit=False)
    last = changelog.write({b"a": b"2", b"b": None, b"c": b"2"})
    assert first < aborted < last
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: first}, 1)
        assert client.reader("counts", 0, first).get_many([b"c", b"b", b"a"]) == [None, b"1", b"1"]
        assert client.reader("counts", 0, first + 1).get_many([b"a"]) == [b"1"]
        assert client.reader("counts", 0, last - 3).get_many([b"a", b"b", b"c"]) == [b"2", b"1", None]
        client.advance("counts", 0, last)
        assert client.reader("counts", 0, None).get_many([b"a", b"b", b"c"]) == [b"2", None, b"2"]
        assert list(client.reader("counts", 0, last).range(b"", None)) == [(b"a", b"2"), (b"c", b"2")]
        with pytest.raises(StateAhead, match=f"offset {first} was asked for, and the state is at {last}"):
            client.advance("counts", 0, first)


def test_large_reads_and_ranges_come_in_parts(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # More keys than one request may have, and values that fill several answers.
    ottla_broker.create_topic(TOPIC)
    values = {b"%06d" % number: b"%d" % number * 40 for number in range(60_000)}
    end = Changelog(ottla_broker).write(values)
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: end}, 1)
        reader = client.reader("counts", 0, end)
        keys = [*reversed(values), b"missing", b"000007"]
        assert reader.get_many(keys) == [values.get(key) for key in keys]
        assert list(reader.range(b"", None)) == list(values.items())
        assert list(reader.range(b"000100", b"050100")) == list(values.items())[100:50_100]
        assert list(reader.range(b"000100", b"050100", is_reversed=True)) == list(values.items())[50_099:99:-1]
        assert list(reader.range(b"0001", b"9", limit=30_000)) == list(values.items())[100:30_100]
        assert list(reader.range(b"5", b"4")) == []


def test_a_killed_server_reads_again_what_it_lost(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # Killed while it restores, and again when it has written part of the state to files.
    ottla_broker.create_topic(TOPIC)
    changelog = Changelog(ottla_broker)
    values = {b"%06d" % number: b"%d" % number for number in range(50_000)}
    end = changelog.write(values)
    with run_server(ottla_broker, tmp_path) as (process, client):
        client.assign(plan_store(), {0: end}, 1)
        process.kill()
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: end}, 1)
        client.advance("counts", 0, end)
    changes: dict[bytes, bytes | None] = {b"%06d" % number: None if number % 2 else b"new" for number in range(20_000)}
    last = changelog.write(changes)
    with run_server(ottla_broker, tmp_path) as (process, client):
        client.assign(plan_store(), {0: end}, 1)
        client.advance("counts", 0, last)
        assert client.status()[0]["records"] == len(changes)  # the first ones were in files
        process.kill()
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: last}, 1)
        expected = {key: value for key, value in (values | changes).items() if value is not None}
        assert dict(client.reader("counts", 0, last).range(b"", None)) == expected


def test_a_client_waits_for_a_server_that_is_away(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    with StateClient("127.0.0.1:9", TOKEN, wait_s=0) as client, pytest.raises(StateUnavailable) as found:
        client.status()
    assert str(found.value) == "state server 127.0.0.1:9: cannot reach it: Connection refused (waited 0 s)"
    with (
        run_server(ottla_broker, tmp_path) as (process, _),
        StateClient(process.address, TOKEN, wait_s=0) as client,
        pytest.raises(StateUnavailable, match="partition 3 of store 'counts' is not assigned"),
    ):
        client.advance("counts", 3, 7)


def test_who_does_not_know_the_token_is_refused(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    with run_server(ottla_broker, tmp_path) as (process, right):
        with StateClient(process.address, "wrong") as wrong, pytest.raises(StateRefused, match="the token is wrong"):
            wrong.status()
        assert right.status() == []


def test_garbage_on_the_socket_ends_its_connection_alone(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    with run_server(ottla_broker, tmp_path) as (process, client):
        host, _, port = process.address.rpartition(":")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\0\0\0\x02{}", b"\0\0\0\x08\0\0\0\0\xff{}!"):
            with socket.create_connection((host, int(port)), PATIENCE_S) as connection, suppress(ConnectionResetError):
                connection.sendall(garbage)
                while connection.recv(4096):
                    pass
        assert client.status() == []


def test_a_wrong_request_gets_an_error(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    with run_server(ottla_broker, tmp_path) as (_, client):
        for kind, fields in ((99, {}), (2, {}), (1, {"store": {}, "partitions": {}}), (4, {"store": 7, "upto": "x"})):
            with pytest.raises(StateRefused):
                client.ask(kind, fields)
        with pytest.raises(StateRefused, match="is not the name of a store"):
            client.assign(plan_store("../../outside"), {0: 0}, 1)
        assert client.status() == []


def test_a_removed_directory_is_restored(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    ottla_broker.create_topic(TOPIC, partitions=2)
    ends = {
        partition: Changelog(ottla_broker, partition=partition).write({b"k": b"%d" % partition}) for partition in (0, 1)
    }
    for _ in range(2):
        with run_server(ottla_broker, tmp_path) as (_, client):
            client.assign(plan_store(), ends, 2)
            for partition, end in ends.items():
                assert client.reader("counts", partition, end).get_many([b"k"]) == [b"%d" % partition]
        shutil.rmtree(tmp_path / "counts" / "0")


def test_a_server_ends_with_the_process_that_started_it(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from ottla.streams.state.starting import ServerProcess\n"
        f"server = ServerProcess({str(tmp_path)!r}, {{'bootstrap.servers': {ottla_broker.bootstrap!r}}}, {TOKEN!r})\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([server], PATIENCE_S)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


def test_a_server_that_cannot_start_says_so(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("wb") as errors, pytest.raises(StreamsError, match="did not start"):
        ServerProcess(str(tmp_path), {"bootstrap.servers": "nonsense"}, TOKEN, stderr=errors)
    assert "bootstrap.servers: 'nonsense' is not host:port" in (tmp_path / "errors").read_text()


def test_two_servers_do_not_share_a_table(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    ottla_broker.create_topic(TOPIC)
    with run_server(ottla_broker, tmp_path) as (_, first), run_server(ottla_broker, tmp_path) as (_, second):
        first.assign(plan_store(), {0: 0}, 1)
        with pytest.raises(StateUnavailable, match="another process has this state open"):
            second.assign(plan_store(), {0: 0}, 1)
        first.drop("counts", 0)
        second.assign(plan_store(), {0: 0}, 1)
