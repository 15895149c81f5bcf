"""`ottla.testing` as its users see it: restarts, faults, time and snapshots on demand, and nothing left behind."""

import gc
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import ottla.testing
from ottla.config import ConfigError
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import decode, encode
from ottla.testing import LocalBroker, Snapshot
from ottla.testing.local import settings_text
from ottla.wire.messages.metadata import MetadataRequest
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
DAY_MS = 86_400_000

WAYS = (
    pytest.param(False, id="thread"),
    pytest.param(True, id="process"),
)
both = pytest.mark.parametrize("process", WAYS)


@pytest.fixture(params=WAYS)
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker with the topic `orders`, in a thread and in a child process."""
    with ottla.testing.broker(process=request.param) as local:
        local.create_topic("orders")
        yield local


@pytest.fixture
def thread_broker() -> Iterator[LocalBroker]:
    """A broker in a thread, for tests in which the kind of process makes no difference."""
    with ottla.testing.broker() as local:
        local.create_topic("orders")
        yield local


def connect(broker: LocalBroker) -> RawClient:
    return RawClient(broker.host, broker.port)


def produce(broker: LocalBroker, value: bytes, topic: str = "orders") -> int:
    """Send one record once. Returns the error code."""
    with connect(broker) as client:
        result = client.produce(topic, 0, encode([(None, value, (), broker.now_ms)]))
        assert result is not None
        return result.error_code


def records(broker: LocalBroker, topic: str = "orders") -> list[tuple[bytes | None, int]]:
    """Read value and timestamp of all records."""
    found: list[tuple[bytes | None, int]] = []
    with connect(broker) as client:
        while data := client.fetch(topic, 0, len(found)).records:
            assert isinstance(data, memoryview)
            found += [(record.value, record.timestamp) for record in decode(data)]
    return found


def values(broker: LocalBroker, topic: str = "orders") -> list[bytes | None]:
    return [value for value, _ in records(broker, topic)]


def topics(broker: LocalBroker) -> dict[str, Any]:
    with connect(broker) as client:
        answer = client.request(MetadataRequest(topics=None), 12)
    return {topic.name: topic for topic in answer.topics}


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False


def has_bytes(client: RawClient) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(client._socket, selectors.EVENT_READ)
        return bool(selector.select(0))


def list_resources(directory: Path) -> tuple[int, int, int, int]:
    """Threads, child processes, files below `directory`, and descriptors that are not files, of this process.

    Other brokers of this process open and close files of their own at any time, so other files do not count.
    """
    gc.collect()
    process = psutil.Process()
    files = process.open_files()
    own_files = [file for file in files if Path(file.path).is_relative_to(directory)]
    return threading.active_count(), len(process.children()), len(own_files), process.num_fds() - len(files)


def leaves_nothing_behind(work: Callable[[], None], directory: Path) -> bool:
    """Whether this process soon has no more than it had before the work. A leak does not go away: waiting hides none.

    Other brokers of this process may get a thread, a child or a descriptor meanwhile, once, so the work is repeated.
    A first start opens what a process needs once, so it is not counted.
    """
    work()
    for limit_s in (PATIENCE_S / 5, PATIENCE_S / 5, PATIENCE_S):
        before = list_resources(directory)
        work()
        deadline = time.monotonic() + limit_s
        while any(now > then for now, then in zip(list_resources(directory), before, strict=True)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        else:
            return True
    pytest.fail(f"{list_resources(directory)}, {before} before: {threading.enumerate()}")


# Coming and going


def test_a_broker_speaks_kafka_on_its_own_port_and_keeps_its_own_files(broker: LocalBroker) -> None:
    # `bootstrap`, `port` and `directory` are those of the running broker.
    assert broker.bootstrap == f"127.0.0.1:{broker.port}"
    assert broker.running
    assert produce(broker, b"first") == 0
    assert values(broker) == [b"first"]
    assert Path(broker.directory, "orders-0").is_dir()


class Unexpected(Exception):
    pass


@both
def test_a_block_that_fails_leaves_nothing_behind(
    process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No thread, child, descriptor or directory is left, although the broker was busy and its client still connected.
    with ottla.testing.broker() as warmed_up:  # imports and opens what a process needs only once
        produce(warmed_up, b"x")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail() -> None:
        with pytest.raises(Unexpected), ottla.testing.broker(process=process) as local:
            local.create_topic("orders", partitions=20)
            client = connect(local)
            client.produce("orders", 0, encode([(None, b"x", (), 0)]))
            local.delay("Metadata", seconds=3600)
            client.send_request(MetadataRequest(topics=None), 12)
            raise Unexpected
        assert client.is_closed_by_peer()
        client.close()
        assert is_refused(local.port)

    assert leaves_nothing_behind(fail, tmp_path)
    assert not list(tmp_path.iterdir())


@both
def test_a_broker_that_cannot_start_leaves_nothing_behind(
    process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The port is taken: the error says so, and the directory that was made for it is gone.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"

        def fail() -> None:
            with pytest.raises(Exception, match="in use"), ottla.testing.broker(process=process, listeners=address):
                pytest.fail("it started")

        assert leaves_nothing_behind(fail, tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_brokers_share_nothing() -> None:
    with ottla.testing.broker() as one, ottla.testing.broker(process=True) as other:
        one.create_topic("orders")
        other.create_topic("orders")
        assert produce(one, b"of one") == 0
        assert values(one) == [b"of one"]
        assert values(other) == []


def test_the_child_ends_with_the_test_that_started_it() -> None:
    # Even if the test is killed, the child ends and its directory is removed.
    script = (
        "import os, psutil, signal, ottla.testing\n"
        "with ottla.testing.broker(process=True) as broker:\n"
        "    print(psutil.Process().children()[0].pid, broker.directory, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    pid, directory = finished.stdout.split()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(pid)).wait(PATIENCE_S)
    assert not Path(directory).exists()


def test_a_broker_that_was_stopped_comes_back_where_it_was(broker: LocalBroker) -> None:
    # Same port, same data, and the log was closed cleanly. Meanwhile clients are refused, and the port is kept.
    port = broker.port
    produce(broker, b"before")
    broker.stop()
    assert not broker.running
    assert is_refused(port)
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind(("127.0.0.1", port))
    assert Path(broker.directory, ".kafka_cleanshutdown").exists()
    broker.restart()
    assert broker.port == port
    assert values(broker) == [b"before"]
    broker.restart()
    assert produce(broker, b"after") == 0
    assert values(broker) == [b"before", b"after"]


def test_a_broker_that_was_killed_recovers_what_it_acknowledged(broker: LocalBroker) -> None:
    with connect(broker) as client:
        for number in range(10):
            client.produce("orders", 0, encode([(None, b"%d" % number, (), 0)]))
        broker.kill()
        assert client.is_closed_by_peer()
    assert is_refused(broker.port)
    assert not Path(broker.directory, ".kafka_cleanshutdown").exists()
    broker.restart()
    assert values(broker) == [b"%d" % number for number in range(10)]


def test_stopping_and_killing_a_stopped_broker_does_nothing(thread_broker: LocalBroker) -> None:
    thread_broker.kill()
    thread_broker.kill()
    thread_broker.stop()
    thread_broker.restart()
    assert values(thread_broker) == []


# Settings and topics


@both
def test_a_broker_gets_the_settings_it_was_given(process: bool) -> None:
    with ottla.testing.broker(process=process, num_partitions=3) as local:
        local.create_topic("chosen", partitions=-1)
        assert len(topics(local)["chosen"].partitions) == 3


def test_settings_have_kafkas_names_and_pythons_values() -> None:
    given = {"log_cleanup_policy": ["delete", "compact"], "log.preallocate": False, "log_roll_ms": 5}
    text = {"log.cleanup.policy": "delete,compact", "log.preallocate": "false", "log.roll.ms": "5"}
    assert settings_text(given) == text


def test_a_setting_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"), ottla.testing.broker(num_partition=3):
        pytest.fail("it started")
    with pytest.raises(ValueError, match=r"log\.dirs"), ottla.testing.broker(log_dirs="/tmp/x"):
        pytest.fail("it started")


def test_a_topic_is_made_as_asked_or_the_refusal_is_raised(thread_broker: LocalBroker) -> None:
    thread_broker.create_topic("made", partitions=4, message_timestamp_type="LogAppendTime")
    assert len(topics(thread_broker)["made"].partitions) == 4
    with pytest.raises(KafkaError) as refused:
        thread_broker.create_topic("made")
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError) as refused:
        thread_broker.create_topic("other", retention_milliseconds=1)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


# Trouble


def test_an_api_fails_as_often_as_requested(broker: LocalBroker) -> None:
    # Failed requests have no effect. Faults of one API happen in the order in which they were added; other APIs work.
    broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    broker.fail("Produce", error=ErrorCode.REQUEST_TIMED_OUT)
    assert values(broker) == []
    assert [produce(broker, b"%d" % number) for number in range(4)] == [6, 6, 7, 0]
    assert values(broker) == [b"3"]


def test_a_fault_without_end_ends_when_it_is_cleared(broker: LocalBroker) -> None:
    broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=None)
    assert {produce(broker, b"x") for _ in range(5)} == {6}
    broker.clear_faults()
    assert produce(broker, b"x") == 0


def test_a_connection_is_dropped_and_the_next_is_served(broker: LocalBroker) -> None:
    broker.drop("Metadata")
    with connect(broker) as client:
        client.send_request(MetadataRequest(topics=None), 12)
        assert client.is_closed_by_peer()
    assert "orders" in topics(broker)


def test_a_request_can_be_handled_and_only_its_answer_be_lost(broker: LocalBroker) -> None:
    # This is how duplicates arise: the record is stored, and the client does not know it.
    broker.drop("Produce", answer_only=True)
    broker.fail("Produce", error="REQUEST_TIMED_OUT", answer_only=True)
    with pytest.raises(ConnectionError):
        produce(broker, b"dropped")
    assert produce(broker, b"failed") == 7
    assert values(broker) == [b"dropped", b"failed"]


def test_an_answer_is_delayed_on_the_clock_of_the_broker(broker: LocalBroker) -> None:
    # A delay of an hour lasts until the clock of the broker has been advanced by an hour.
    broker.delay("Metadata", seconds=3600)
    request = MetadataRequest(topics=None)
    with connect(broker) as client:
        client.send_request(request, 12)
        broker.advance(minutes=59)
        assert not has_bytes(client)
        broker.advance(minutes=1)
        assert client.read_response(request, 12).topics[0].name == "orders"


def test_a_fault_added_while_the_broker_is_down_hits_its_first_request(broker: LocalBroker) -> None:
    # A fault that was left over from before the stop is gone.
    broker.drop("Produce", times=None)
    broker.kill()
    broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER")
    broker.restart()
    assert [produce(broker, b"x") for _ in range(2)] == [6, 0]


def test_faults_that_could_never_happen_are_refused(thread_broker: LocalBroker) -> None:
    with pytest.raises(ValueError, match="did you mean Produce"):
        thread_broker.fail("produce", error="REQUEST_TIMED_OUT")
    with pytest.raises(ValueError, match="did you mean REQUEST_TIMED_OUT"):
        thread_broker.fail("Produce", error="REQUEST_TIMEOUT")
    with pytest.raises(ValueError, match="times"):
        thread_broker.drop("Produce", times=0)


# Time


def test_eight_days_pass_at_once(broker: LocalBroker) -> None:
    # The records that the broker stamps are eight days apart, and the client is still connected.
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime", retention_ms=-1)
    with connect(broker) as client:
        for _ in range(2):
            client.produce("stamped", 0, encode([(None, b"x", (), 0)]))
            broker.advance(days=8)
    (_, first), (_, second) = records(broker, "stamped")
    assert 0 <= second - first - 8 * DAY_MS < PATIENCE_S * 1000
    assert 0 <= broker.now_ms - second - 8 * DAY_MS < PATIENCE_S * 1000


def test_advance_returns_after_background_work_that_is_due(broker: LocalBroker) -> None:
    # The high watermark is written to disk every five seconds, by a thread.
    checkpoint = Path(broker.directory, "replication-offset-checkpoint")
    produce(broker, b"x")
    broker.advance(seconds=6)
    assert "orders 0 1\n" in checkpoint.read_text()
    produce(broker, b"y")
    broker.advance(seconds=6)
    assert "orders 0 2\n" in checkpoint.read_text()


def test_time_goes_on_from_where_it_was_after_a_restart(broker: LocalBroker) -> None:
    # It also passes while the broker is down, and never goes back.
    broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    produce(broker, b"x", "stamped")
    broker.advance(days=1)
    broker.kill()
    broker.advance(days=2)
    broker.restart()
    produce(broker, b"x", "stamped")
    (_, first), (_, second) = records(broker, "stamped")
    assert 0 <= second - first - 3 * DAY_MS < PATIENCE_S * 1000
    with pytest.raises(ValueError, match="back"):
        broker.advance(days=-1)


# Snapshots


@both
def test_a_broker_begins_with_the_data_of_a_snapshot(broker: LocalBroker, process: bool) -> None:
    # The new broker has its own data from then on, and continues the clock of the first one.
    produce(broker, b"shared")
    broker.advance(days=5)
    snapshot = broker.snapshot()
    produce(broker, b"only here")
    for _ in range(2):
        with ottla.testing.broker(process=process, snapshot=snapshot) as other:
            assert values(other) == [b"shared"]
            assert abs(other.now_ms - broker.now_ms) < PATIENCE_S * 1000
            assert produce(other, b"only there") == 0
    assert values(broker) == [b"shared", b"only here"]


def test_a_temporary_snapshot_is_removed_with_its_last_reference() -> None:
    with ottla.testing.broker() as local:
        snapshot = local.snapshot()
    directory = Path(snapshot.directory)
    assert directory.is_dir()
    del snapshot
    gc.collect()
    assert not directory.parent.exists()


def test_a_snapshot_in_a_named_directory_stays(thread_broker: LocalBroker, tmp_path: Path) -> None:
    # A snapshot of a broker that was stopped cleanly has a clean-shutdown marker.
    produce(thread_broker, b"kept")
    thread_broker.stop()
    assert isinstance(thread_broker.snapshot(tmp_path / "kept"), Snapshot)
    gc.collect()
    assert (tmp_path / "kept" / ".kafka_cleanshutdown").exists()
    with ottla.testing.broker(snapshot=tmp_path / "kept") as other:
        assert values(other) == [b"kept"]


def test_a_missing_snapshot_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), ottla.testing.broker(snapshot=tmp_path / "nothing"):
        pytest.fail("it started")


# The plug-in

TESTS = """
import pytest

ports = []

@pytest.fixture(scope="session")
def ottla_settings():
    return {"num_partitions": 2}

def partitions(broker):
    broker.create_topic("fresh", partitions=-1)
    with pytest.raises(Exception):
        broker.create_topic("fresh")

def test_alone(ottla_broker):
    partitions(ottla_broker)

@pytest.mark.ottla(num_partitions=5, process=True)
def test_marked(ottla_broker):
    partitions(ottla_broker)
    assert ottla_broker._config.num_partitions == 5

@pytest.mark.parametrize("turn", [1, 2])
def test_shared(ottla_session_broker, ottla_broker, turn):
    ports.append(ottla_session_broker.port)
    assert ottla_broker.port not in ports
    assert len(set(ports)) == 1
    assert ottla_broker._config.num_partitions == 2
"""


def test_the_fixtures_give_a_broker_to_a_test_and_to_a_session(tmp_path: Path) -> None:
    # With the strict settings of this suite: warnings are errors.
    (tmp_path / "test_theirs.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "ottla.testing.plugin",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--strict-markers",
        "-q",
    ]
    finished = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "4 passed" in finished.stdout


def test_the_plug_in_costs_nothing_where_it_is_not_used() -> None:
    # pytest imports it in every project of an environment that Ottla is installed in.
    script = "import sys, ottla.testing.plugin; print(sorted(name for name in sys.modules if name.startswith('ottla')))"
    printed = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "['ottla', 'ottla.testing', 'ottla.testing.plugin']"


def test_the_plug_in_is_registered_with_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"ottla": "ottla.testing.plugin"}
