"""Members of groups as child processes, and checks of the events that they report."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from benchmarks.peers.apache_kafka import java_command
from tests.clients import logins
from tests.clients.child import SOURCE
from tests.clients.group_member import CONSUMER, SESSION_MS, Membership
from tests.fork_server import HAND_OVER, run_fork_server
from tests.patience import PATIENCE_MS, PATIENCE_S

JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
RESTART_MS = PATIENCE_MS
"""The session time-out of a member that is restarted and must be back within it, however long its start takes."""
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")

SCRIPT = """#!{python} -IS
import os, signal, socket, struct, sys
{hand_over}
hand_over("{path}", sys.argv[1:], [0, 1, 2])
"""


def run_at_once(*works: Callable[[], None]) -> None:
    """Run each function in a thread, since groups mostly wait. When all have ended, the first failure is raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
    for future in futures:
        future.result()


class Event(NamedTuple):
    at_ms: int
    member: int
    name: str
    details: dict[str, Any]

    @property
    def partitions(self) -> list[int]:
        return [each["partition"] for each in self.details.get("partitions", ())]


class MemberProcess:
    def __init__(self, group: "TestedGroup", number: int, library: str, membership: Membership) -> None:
        self.number = number
        self.library = library
        self.membership = membership
        self.assigned: set[int] = set()
        self._group = group
        self._errors = group.directory / f"member-{number}.stderr"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command(library, membership, group.directory),
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), str(SOURCE.parent)))},
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"{"):
                details = json.loads(line)
                self._group.add(self, Event(details["timestamp"], self.number, details["name"], details))

    def kill(self) -> None:
        """Kill the process with SIGKILL. It does not leave its group."""
        self.process.kill()
        self._wait_for_end()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        status = self._wait_for_end()
        # -SIGTERM: the process was asked to end before it had installed its signal handler.
        assert status in (0, 143, -signal.SIGTERM), (self.library, status, self._errors.read_text()[-2000:])

    def _wait_for_end(self) -> int:
        status = self.process.wait(PATIENCE_S)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._group.remove(self)
        return status


class MemberServer:
    """Forks members, so that each of them need not import its library. It is started for the first of them."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._script: Path | None = None
        self._lock = threading.Lock()

    def find_script(self) -> Path:
        """The executable that stands for `python -m tests.clients.group_member`."""
        with self._lock:
            if self._script is None:
                path = self._running.enter_context(run_fork_server("tests.clients.group_member"))
                self._script = path.with_name("group-member")
                self._script.write_text(SCRIPT.format(python=sys.executable, hand_over=HAND_OVER, path=path))
                self._script.chmod(0o755)
            return self._script

    def close(self) -> None:
        self._script = None
        self._running.close()


MEMBER_SERVER = MemberServer()


def command(library: str, member: Membership, directory: Path) -> list[str]:
    if library != "java":
        words = [word for word in member if word is not None]
        return [str(MEMBER_SERVER.find_script()), library, *words]
    settings = directory / "java.properties"
    instance = ("--group-instance-id", member.instance) if member.instance else ()
    lines = ["fetch.max.wait.ms=50", "max.poll.records=500", *logins.java_lines(member.bootstrap)]
    if member.assignor == CONSUMER:
        protocol = ["--group-protocol", "consumer"]
    else:
        lines.append("heartbeat.interval.ms=250")
        assignor = f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[member.assignor]}"
        protocol = ["--session-timeout", member.session_ms, "--assignment-strategy", assignor]
    settings.write_text("\n".join(lines))
    return java_command(
        "org.apache.kafka.tools.VerifiableConsumer",
        "--bootstrap-server",
        member.bootstrap,
        "--group-id",
        member.group,
        "--topic",
        member.topic,
        "--command-config",
        str(settings),
        *protocol,
        *instance,
        options=JAVA_OPTIONS,
    )


class TestedGroup:
    """One group: all events of its members, and how far they have read and committed."""

    __test__ = False

    def __init__(self, directory: Path, bootstrap: str, name: str, topic: str, partitions: int) -> None:
        self.directory = directory
        self.events: list[Event] = []
        self.members: list[MemberProcess] = []
        self.topic = topic
        self._bootstrap, self._name, self._partitions = bootstrap, name, partitions
        self._started = 0
        self._committed = dict.fromkeys(range(partitions), 0)
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for member in list(self.members):
            member.kill()

    def start(
        self, library: str, assignor: str = "range", instance: str | None = None, session_ms: int = SESSION_MS
    ) -> MemberProcess:
        membership = Membership(self._bootstrap, self._name, self.topic, assignor, str(session_ms), instance)
        self._started += 1
        member = MemberProcess(self, self._started, library, membership)
        self.members.append(member)
        return member

    # --- what members tell ---

    def add(self, member: MemberProcess, event: Event) -> None:
        with self._news:
            self.events.append(event)
            if event.name == "partitions_assigned":
                member.assigned |= set(event.partitions)
            elif event.name == "partitions_revoked":
                member.assigned -= set(event.partitions)
            elif event.name == "offsets_committed" and event.details["success"]:
                for each in event.details["offsets"]:
                    self._committed[each["partition"]] = max(self._committed[each["partition"]], each["offset"])
            self._news.notify_all()

    def remove(self, member: MemberProcess) -> None:
        with self._news:
            self.members.remove(member)
            self._news.notify_all()

    def await_news(self, done: Callable[[], bool], what: str) -> None:
        with self._news:
            assert self._news.wait_for(done, PATIENCE_S), f"{what}: {self.events[-12:]}"

    def await_shares(self, *counts: int) -> None:
        """Wait until every partition has an owner, and the members own these numbers of partitions."""
        self.await_news(lambda: self.shares() == sorted(counts), f"{self.shares()} is not {sorted(counts)}")

    def shares(self) -> list[int]:
        """How many partitions each member owns. Empty while a partition has two owners or none."""
        held = sorted(partition for member in self.members for partition in member.assigned)
        return sorted(len(each.assigned) for each in self.members) if held == list(range(self._partitions)) else []

    def await_committed(self, count: int) -> None:
        """Wait until so many records are committed."""
        self.await_news(lambda: sum(self._committed.values()) >= count, f"{count} are not committed")

    # --- what it must add up to ---

    def check(self, ends: dict[int, int]) -> int:
        """Check that every record was read, and that no member began after the last commit. Returns how many were read
        twice."""
        for partition, end in ends.items():
            ranges = [(first, last) for first, last, _ in self._read_of(partition)]
            assert find_covered_end(ranges) == end, (partition, find_covered_end(ranges), end)
            self._check_beginnings(partition)
        read = sum(last - first + 1 for partition in ends for first, last, _ in self._read_of(partition))
        return read - sum(ends.values())

    def _read_of(self, partition: int) -> list[tuple[int, int, Event]]:
        return [
            (each["minOffset"], each["maxOffset"], event)
            for event in self.events
            if event.name == "records_consumed"
            for each in event.details["partitions"]
            if each["partition"] == partition
        ]

    def _check_beginnings(self, partition: int) -> None:
        """Check that after each assignment a member continues at the last commit before it, and leaves nothing out."""
        commits = [
            (event.at_ms, each["offset"])
            for event in self.events
            if event.name == "offsets_committed" and event.details["success"]
            for each in event.details["offsets"]
            if each["partition"] == partition
        ]
        for number in range(1, self._started + 1):
            assigned_ms, expected = 0, None
            for event in (each for each in self.events if each.member == number):
                if event.name == "partitions_assigned" and partition in event.partitions:
                    assigned_ms, expected = event.at_ms, None
                elif event.name == "records_consumed":
                    for each in event.details["partitions"]:
                        if each["partition"] != partition:
                            continue
                        known = max((offset for at_ms, offset in commits if at_ms < assigned_ms), default=0)
                        first = each["minOffset"]
                        assert first >= known if expected is None else first == expected, (event, known, expected)
                        assert each["count"] == each["maxOffset"] - first + 1, event
                        expected = each["maxOffset"] + 1


def find_covered_end(ranges: list[tuple[int, int]]) -> int:
    """The offset up to which the ranges cover everything from 0 on."""
    end = 0
    for first, last in sorted(ranges):
        if first > end:
            break
        end = max(end, last + 1)
    return end
