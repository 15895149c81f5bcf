"""`ottla` as people use it: as a command of its own, with pipes, signals and files, against a real broker."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from benchmarks.peers.apache_kafka import ApacheKafka
from ottla.config.properties import format_properties
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.clients import logins
from tests.clients.command_server import CommandServer
from tests.needs import require_program
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command-line.md"
SEVERAL = re.compile("…")
SPACES = re.compile(" +")
QUICK = ("-X", "enable.idempotence=false")
"""Saves the half second that librdkafka waits before it asks for a producer id."""


class Commands(ABC):
    """Runs commands with the broker that they talk to."""

    bootstrap: str

    @abstractmethod
    def ended(self, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command until it has ended."""

    def __call__(self, *arguments: str, data: bytes = b"") -> bytes:
        """Run a command that must succeed. Returns what it prints. It must print nothing on stderr."""
        ended = self.ended(*arguments, *(QUICK if arguments[0] == "produce" else ()), data=data)
        assert (ended.returncode, ended.stderr) == (0, b""), ended.stderr.decode()
        return ended.stdout


class CommandLine(Commands):
    """Runs each command in a process."""

    def __init__(self, bootstrap: str, directory: Path, commands: CommandServer) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self._script = directory / "ottla"
        commands.write_script(self._script)
        self.environment = {
            **os.environ,
            **logins.variables(bootstrap),
            "PATH": f"{directory}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
        }

    def ended(self, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self._script, *arguments],
            input=data,
            env=self.environment,
            capture_output=True,
            timeout=PATIENCE_S,
        )

    def shell(self, line: str) -> str:
        """Run a line of bash. Returns stdout and stderr together, as a terminal shows them."""
        ended = subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
        )
        return ended.stdout.decode()

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command in a Python of its own, for signals."""
        command = [sys.executable, "-m", "ottla", *arguments]
        child = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with child:
            try:
                yield child
            finally:
                child.kill()


class SameProcess(Commands):
    """Runs commands in this process: a hundred processes would take longer than what they do."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def ended(self, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in logins.variables(self.bootstrap).items():
                patch.setenv(name, value)
            status, output, errors = run([*arguments], data)
        return subprocess.CompletedProcess(arguments, status, output.encode(), errors.encode())


@pytest.fixture
def ottla(broker: LocalBroker, tmp_path: Path, commands: CommandServer) -> CommandLine:
    return CommandLine(broker.bootstrap, tmp_path, commands)


def examples(page: Path = PAGE) -> list[tuple[str, list[str]]]:
    """Each command of the documentation page, and the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def fits(printed: str, expected: str) -> bool:
    """Whether the output matches the expected lines. `…` stands for any text, and the width of columns does not
    count."""
    pattern = ".*".join(re.escape(piece) for piece in SEVERAL.split(SPACES.sub(" ", expected)))
    return re.fullmatch(pattern, SPACES.sub(" ", printed)) is not None


def test_the_examples_of_the_page_print_what_it_says(tmp_path: Path, commands: CommandServer) -> None:
    # Every example runs in order on one new broker, and prints what the page says.
    require_program("bash")
    shown = {command.split("ottla ", 1)[1].split()[0] for command, _ in examples() if "ottla " in command}
    assert shown >= {"topic", "produce", "consume", "config", "bench", "log", "completion", "group", "txn"}
    with local_broker(process=True) as fresh:  # without security: the commands of the page have no login
        ottla = CommandLine(fresh.bootstrap, tmp_path, commands)
        ottla.environment["DATA"] = str(fresh.directory)
        ottla.environment["COPY"] = str(tmp_path)
        ottla.environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
        ottla.environment["TLS"] = str(tmp_path / "tls")
        ottla.environment["CLIENT"] = str(tmp_path / "client.properties")
        login = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice"}
        (tmp_path / "client.properties").write_text(format_properties(login))
        for command, expected in examples():
            printed = ottla.shell(command).splitlines()
            assert len(printed) == len(expected), f"{command}\n{printed}"
            for line, wanted in zip(printed, expected, strict=True):
                assert fits(line, wanted), f"{command}\n{line}\n{wanted}"


def test_any_bytes_survive_a_round_trip(ottla: CommandLine, topic: str) -> None:
    # Whole files with every byte value, and lines that end with a byte of the user's choice.
    value = bytes(range(256)) * 1000
    ottla("produce", "--create", topic, "--format", "whole", data=value)
    assert ottla("consume", topic, "--format", "%s") == value
    ottla("produce", topic, "-D", "\\0", "-K", "\\xff", data=b"k\n\xffv\n1\0\xff\xff\0")
    assert ottla("consume", topic, "--offset", "1", "--format", "%k|%s;") == b"k\n|v\n1;|\xff;"


def test_a_copy_through_json_has_the_same_records(ottla: CommandLine, topic: str) -> None:
    # Keys, nulls, headers, times and partitions survive the conversion to text and back.
    ottla("topic", "create", "-p", "3", topic, f"{topic}-copy")
    line = b'{"key": {"base64": "/%02d="}, "value": null, "timestamp": %d}\n'
    lines = b"".join(line % (number, number) for number in range(10, 40))
    ottla("produce", topic, "--format", "json", "-H", "a=b", data=lines)
    original = ottla("consume", topic, "--format", "json")
    ottla("produce", f"{topic}-copy", "--format", "json", "--keep-partition", data=original)
    copy = ottla("consume", f"{topic}-copy", "--format", "json").replace(b"-copy", b"")
    assert sorted(copy.splitlines()) == sorted(original.splitlines())
    assert len(original.splitlines()) == 30


def test_the_newest_records_of_all_partitions_in_the_order_of_time(ottla: CommandLine, topic: str) -> None:
    ottla("topic", "create", "-p", "4", topic)
    records = [{"value": str(number), "timestamp": 1000 + number, "partition": number % 3} for number in range(50)]
    ottla("produce", topic, "--format", "json", "--keep-partition", data="\n".join(map(json.dumps, records)).encode())
    assert ottla("consume", topic, "--last", "5").split() == [b"45", b"46", b"47", b"48", b"49"]
    assert ottla("consume", topic, "--last", "0") == b""
    assert len(ottla("consume", topic, "--last", "1000").split()) == 50
    since = ottla("consume", topic, "--since", "1970-01-01T00:00:01.040Z", "--until", "1045")
    assert sorted(since.split()) == [b"40", b"41", b"42", b"43", b"44"]
    assert len(ottla("consume", topic, "-p", "0", "-p", "3").split()) == 17


def test_following_prints_new_records_until_an_interrupt(ottla: CommandLine, topic: str) -> None:
    # Existing records come first, new ones as they are sent. An interrupt is the normal end, not a failure.
    ottla("produce", "--create", topic, data=b"there\n")
    with ottla.running("consume", topic, "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"there\n"
        ottla("produce", topic, data=b"new\n" * 1000)
        assert [follower.stdout.readline() for _ in range(1000)] == [b"new\n"] * 1000
        follower.send_signal(signal.SIGINT)
        output, errors = follower.communicate(timeout=PATIENCE_S)
        assert (follower.returncode, output, errors) == (0, b"", b"")


def test_following_ends_after_the_requested_number_of_records(ottla: CommandLine, topic: str) -> None:
    ottla("topic", "create", topic)
    with ottla.running("consume", topic, "--follow", "--count", "3", "--value-matches", "yes") as follower:
        ottla("produce", topic, data=b"yes 1\nno\nyes 2\nyes 3\nyes 4\n")
        output, errors = follower.communicate(timeout=PATIENCE_S)
        assert (follower.returncode, output, errors) == (0, b"yes 1\nyes 2\nyes 3\n", b"")


def test_a_pipe_that_closes_early_is_no_failure(ottla: CommandLine, topic: str) -> None:
    ottla("produce", "--create", topic, data=b"line\n" * 50_000)
    printed = ottla.shell(f"set -o pipefail; ottla consume {topic} | head -1; echo status $?")
    assert printed == "line\nstatus 0\n"
    ottla.shell(f"seq 30000 | ottla produce {topic} --report | head -1")
    printed = ottla.shell(f"ottla topic describe {topic}")
    assert "80000" in printed.split()


def test_an_interrupted_producer_has_sent_what_it_read(ottla: CommandLine, topic: str) -> None:
    # Whole lines are sent at once, although more may come. A line that is not complete is not a record.
    ottla("topic", "create", topic)
    with ottla.running("produce", topic) as child:
        assert child.stdin is not None
        child.stdin.write(b"one\ntwo\nthr")
        child.stdin.flush()
        assert ottla("consume", topic, "--follow", "--count", "2") == b"one\ntwo\n"
        child.send_signal(signal.SIGINT)
        assert (child.wait(PATIENCE_S), child.stderr and child.stderr.read()) == (130, b"")
    assert ottla("consume", topic) == b"one\ntwo\n"


def test_a_record_that_the_broker_refuses_is_reported(ottla: CommandLine, topic: str) -> None:
    ottla("topic", "create", topic, "--set", "max.message.bytes=1000")
    ended = ottla.ended("produce", topic, data=b"x" * 2000)
    assert ended.returncode == 1
    (line,) = ended.stderr.decode().splitlines()
    assert "1 record not delivered: Message size too large" in line


def test_a_broker_that_dies_under_a_producer_is_reported(tmp_path: Path, commands: CommandServer) -> None:
    # Records that the broker acknowledged stay in the log. A setting of the client says how long it retries the rest.
    # The error is one line.
    with logins.run_broker(process=True) as fresh:
        ottla = CommandLine(fresh.bootstrap, tmp_path, commands)
        ottla("topic", "create", "orders")
        with ottla.running("produce", "orders", "-X", "message.timeout.ms=1500", *QUICK) as child:
            assert child.stdin is not None
            child.stdin.write(b"before\n")
            child.stdin.flush()
            assert ottla("consume", "orders", "--follow", "--count", "1") == b"before\n"
            fresh.kill()
            _, errors = child.communicate(b"after\n" * 10, timeout=PATIENCE_S)
            assert child.returncode == 1
            assert errors == b"ottla: topic 'orders': 10 records not delivered: Message timed out\n"
        fresh.restart()
        assert ottla("consume", "orders") == b"before\n"


def test_several_topics_at_once_say_which_of_them_failed(ottla: CommandLine, topic: str) -> None:
    ottla("topic", "create", topic)
    ended = ottla.ended("topic", "delete", f"{topic}-missing", topic)
    assert (ended.returncode, ended.stdout.decode()) == (1, f"topic '{topic}' deleted\n")
    assert f"topic '{topic}-missing': " in ended.stderr.decode()
    assert ottla("topic", "delete", topic, "--if-exists") == b""


def test_a_missing_topic_is_reported_and_not_created(ottla: CommandLine, topic: str) -> None:
    for arguments in ["consume"], ["produce"], ["topic", "describe"], ["topic", "alter", "-p", "3"]:
        ended = ottla.ended(*arguments, topic, data=b"x\n")
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert ended.stderr.decode().startswith(f"ottla: there is no topic '{topic}' at ")
    assert topic not in ottla("topic", "list").decode().split()


def test_a_dry_run_changes_nothing(ottla: CommandLine, topic: str) -> None:
    ottla("topic", "create", topic, "--dry-run")
    assert topic not in ottla("topic", "list").decode().split()
    ottla("topic", "create", topic)
    ottla("topic", "alter", topic, "-p", "5", "--set", "retention.ms=5", "--dry-run")
    (described,) = json.loads(ottla("topic", "describe", topic, "--format", "json"))
    assert (len(described["partitions"]), described["settings"]) == (1, {})


def test_trimming_deletes_the_oldest_and_no_more(ottla: CommandLine, topic: str) -> None:
    ottla("topic", "create", topic, "-p", "2")
    for partition in "01":
        ottla("produce", topic, "-p", partition, data=b"1\n2\n3\n4\n5\n")

    def trim(*arguments: str) -> list[tuple[int, int, int]]:
        rows = json.loads(ottla("topic", "trim", topic, "--format", "json", *arguments))
        return [(row["partition"], row["begins"], row["deleted"]) for row in rows]

    assert trim("--keep", "2", "--dry-run") == [(0, 3, 3), (1, 3, 3)]
    assert trim("--before", "1", "-p", "1") == [(1, 1, 1)]
    assert trim("--before", "1") == [(0, 1, 1), (1, 1, 0)]
    assert trim("--older-than", "1h") == [(0, 1, 0), (1, 1, 0)]
    assert trim("--keep", "2") == [(0, 3, 2), (1, 3, 2)]
    assert trim("--keep", "9") == [(0, 3, 0), (1, 3, 0)]
    assert trim("--keep", "0", "-p", "0") == [(0, 5, 2)]
    assert trim("--before", "99", "-p", "1") == [(1, 5, 2)]
    assert ottla("consume", topic) == b""
    ended = ottla.ended("topic", "trim", topic, "--all", "-p", "7")
    assert (ended.returncode, ended.stderr) == (1, f"ottla: topic '{topic}' has no partition 7\n".encode())
    assert ottla.ended("topic", "trim", topic).returncode == 2


def test_groups_and_transactions_of_our_broker(broker: LocalBroker, topic: str) -> None:
    ottla = SameProcess(broker.bootstrap)
    ottla("topic", "create", topic, "-p", "2")
    use_groups(ottla, topic)
    use_transactions(ottla, topic)


def test_every_command_works_with_apache_kafka(apache_kafka: ApacheKafka) -> None:
    # Every command does on Apache Kafka what the page shows for our broker.
    use_everything(SameProcess(apache_kafka.bootstrap))


def use_everything(ottla: Commands) -> None:
    """Run each command, and check the result that it must have on any cluster."""
    name = "use-everything"
    assert ottla("topic", "create", name, "-p", "2") == f"topic '{name}' created\n".encode()
    assert ottla.ended("topic", "create", name).returncode == 1
    ottla("topic", "alter", name, "-p", "3", "--set", "retention.ms=5000000")
    (described,) = json.loads(ottla("topic", "describe", name, "--format", "json"))
    assert (len(described["partitions"]), described["settings"]) == (3, {"retention.ms": "5000000"})
    assert [copy["bytes"] for partition in described["partitions"] for copy in partition["copies"]] == [0, 0, 0]
    ottla("config", "set", "topic", name, "cleanup.policy+=compact", "--unset", "retention.ms")
    changed = json.loads(ottla("config", "get", "topic", name, "cleanup.policy", "--format", "json"))
    assert [setting["value"] for setting in changed] == ["delete,compact"]
    ottla("produce", name, "-K", ":", "-z", "lz4", data=b"a:1\nb:2\nc:3\n")
    ottla("produce", name, "-k", "a", "-H", "h=1", "--acks", "1", data=b"4\n")
    assert sorted(ottla("consume", name, "--format", "%k%s\n").split()) == [b"a1", b"a4", b"b2", b"c3"]
    assert ottla("consume", name, "--last", "1", "--format", "%s %h") == b"4 h=1"
    assert ottla("consume", name, "--since", "1h", "--key-matches", "a", "--count", "1") == b"1\n"
    trimmed = json.loads(ottla("topic", "trim", name, "--all", "--format", "json"))
    assert [row["begins"] - row["began"] for row in trimmed] == [row["deleted"] for row in trimmed]
    assert sum(row["deleted"] for row in trimmed) == 4
    assert ottla("consume", name) == b""
    use_groups(ottla, name)
    use_transactions(ottla, name)
    produced, consumed, _ = json.loads(ottla("bench", "--seconds", "0.1", "--format", "json"))
    assert produced["records"] == consumed["records"] > 0
    ottla("topic", "delete", name)
    deadline = time.monotonic() + PATIENCE_S
    while not (ended := ottla.ended("consume", name)).stderr.startswith(b"ottla: there is no"):
        assert ended.returncode == 1 and time.monotonic() < deadline, ended  # Kafka's brokers hear of it one by one
    assert ended.returncode == 1


def use_groups(ottla: Commands, topic: str) -> None:
    """Set, show and delete the committed offsets of a group."""
    group = "use-groups"

    def reset(*arguments: str) -> list[int]:
        return [row["after"] for row in json.loads(ottla("group", "reset", group, *arguments, "--format", "json"))]

    ottla("produce", topic, "-p", "0", "-k", "k", data=b"x\n" * 10)
    (first, *_) = json.loads(ottla("topic", "describe", topic, "--format", "json"))[0]["partitions"]
    begin, end = first["beginning"], first["end"]
    only = f"{topic}:0"
    assert reset("-t", only, "--to-earliest") == [begin]
    assert reset("-t", only, "--to-latest", "--dry-run") == [end]
    assert reset("--all-topics", "--shift-by", "3") == [begin + 3]
    assert reset("--all-topics", "--shift-by", "-99") == [begin]
    assert reset("--all-topics", "--to-offset", str(end + 5)) == [end]
    assert reset("--all-topics", "--to-time", "1h") == [begin]
    assert reset("--all-topics", "--to-current") == [begin]
    wanted = json.dumps([{"topic": topic, "partition": 0, "after": begin + 2}])
    (row,) = json.loads(ottla("group", "reset", group, "--from-file", "-", "--format", "json", data=wanted.encode()))
    assert (row["before"], row["after"]) == (begin, begin + 2)
    ottla("group", "reset", group, "--from-file", "-", data=f'"{topic}",0,{begin + 4}\n'.encode())
    (described,) = json.loads(ottla("group", "describe", group, "--format", "json"))
    assert (described["state"], described["lag"], described["members"]) == ("empty", end - begin - 4, [])
    listed = json.loads(ottla("group", "list", "--state", "empty", "--format", "json"))
    assert group in [found["group"] for found in listed]
    ottla("group", "delete", group, "-t", topic)
    (described,) = json.loads(ottla("group", "describe", group, "--format", "json"))
    assert described["offsets"] == []
    ottla("group", "delete", group, "--if-exists")
    assert ottla.ended("group", "describe", group).returncode == 1
    assert ottla.ended("group", "delete", group).returncode == 1


def use_transactions(ottla: Commands, topic: str) -> None:
    """Show a transaction while it is open and after it has ended. None is reported as hanging."""
    producer = Producer({**logins.librdkafka(ottla.bootstrap), "transactional.id": "use-transactions"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", b"k", partition=1)
    producer.flush(PATIENCE_S)
    listed = json.loads(ottla("txn", "list", "--state", "ongoing", "--matching", "use.*", "--format", "json"))
    assert [found["transactional_id"] for found in listed] == ["use-transactions"]
    (described,) = json.loads(ottla("txn", "describe", "use-transactions", "--format", "json"))
    assert (described["state"], described["partitions"]) == ("ongoing", [f"{topic}-1"])
    assert json.loads(ottla("txn", "find-hanging", "-t", topic, "--older-than", "0s", "--format", "json")) == []
    producer.commit_transaction(PATIENCE_S)
    ended = ottla.ended("txn", "abort", topic, "1", "--start-offset", "0")
    assert (ended.returncode, ended.stdout) == (2, b"")
