"""A broker under several attacks at once, while one well-behaved client works and the memory is watched.

The broker is a process of its own. At the end it must be running, have answered the well-behaved client all the time,
have stayed within its memory limit, have no more descriptors open than before, and have logged no traceback.
"""

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

import psutil

from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.clients.child import HOST, OttlaUp
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import append, create_topic, decode_records, find_topic_id, make_batch, produce_batch
from tests.scenarios.every_request import ask_until_settled
from tests.scenarios.fuzz.attacks import ATTACKS, Attack, Target

GOOD, VICTIM = "good", "victim"
STRANGERS = 3
SAMPLE_S = 0.25
TIDY_S = 2.0
PEAK_BYTES_MAX = 250_000_000
GROWTH_BYTES_MAX = 20_000_000
FLAT_FROM_S = 30.0
"""Growth of memory is checked only in runs of at least this length."""
WARM_UP_RECORDS, WARM_UP_BATCHES = 1000, 15
"""Enough records that the machine code for validation is loaded before memory is compared."""
SPARE_DESCRIPTORS = 10


@dataclass
class Findings:
    seed: int
    attacks: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    answered: int = 0
    slowest_s: float = 0.0
    resident: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        attacks = ", ".join(f"{name} {count}" for name, count in sorted(self.attacks.items()))
        thirds = [f"{int(median(part)) >> 20}" for part in split_in_thirds(self.resident)]
        return (
            f"seed {self.seed}: {self.attacks.total()} attacks ({attacks})\n"
            f"good client: {self.answered} records there and back, the slowest in {self.slowest_s:.2f} s\n"
            f"memory: at most {max(self.resident) >> 20} MB; the medians of its thirds {', '.join(thirds)} MB"
        )


def split_in_thirds(samples: list[int]) -> list[list[int]]:
    """Split the samples into three parts of the same length."""
    third = max(len(samples) // 3, 1)
    return [samples[:third], samples[third : 2 * third] or samples, samples[2 * third :] or samples]


class Siege:
    def __init__(
        self,
        broker: OttlaUp,
        seed: int,
        attacks: Sequence[Attack] = ATTACKS,
        ports: Mapping[str, int] | None = None,
    ) -> None:
        """`ports`: those of listeners with TLS or SASL."""
        self.findings = Findings(seed)
        self._attacks = attacks
        self._broker = broker
        self._process = psutil.Process(broker.process.pid)
        self._over = threading.Event()
        with self._connect() as client:
            for topic in (GOOD, VICTIM):
                assert create_topic(client, topic, configs={"retention.ms": "-1"}).error_code == 0
            append(client, VICTIM, b"x" * 500_000)
            for kind in (0, 1):  # the internal topics have files of their own, and are created on first use
                ask_until_settled(client, FindCoordinatorRequest(coordinator_keys=["any"], key_type=kind), 6)
            self._target = Target(HOST, broker.port, VICTIM, find_topic_id(client, VICTIM), ports or {})

    def run(self, seconds: float = math.inf, attacks: float = math.inf) -> Findings:
        """Attack until the time is over, or this many attacks were made. In a long siege memory must not grow."""
        is_long = FLAT_FROM_S <= seconds < math.inf
        with self._connect() as client:
            if is_long:
                for _ in range(WARM_UP_BATCHES):
                    produce_batch(client, GOOD, make_batch(*(b"x" for _ in range(WARM_UP_RECORDS))))
            before = self._process.num_fds()
            strangers = [
                threading.Thread(target=self._attack, args=(Random(f"{self.findings.seed}-{number}"),), daemon=True)
                for number in range(STRANGERS)
            ]
            for stranger in strangers:
                stranger.start()
            try:
                self._work(client, time.monotonic() + seconds, attacks)
            except (OSError, AssertionError) as trouble:
                self.findings.problems.append(f"the good client: {trouble!r}")
            self._over.set()
            for stranger in strangers:
                stranger.join(PATIENCE_S)
            if self._broker.process.poll() is None:
                self._tidy(client)
        self._judge_run(before, is_long)
        return self.findings

    def _connect(self) -> RawClient:
        return RawClient(HOST, self._broker.port, "good", PATIENCE_S)

    def _attack(self, random: Random) -> None:
        while not self._over.is_set():
            attack = random.choice(self._attacks)
            try:
                attack(random, self._target)
            except AssertionError as failure:
                self.findings.problems.append(f"{attack.__name__}: {failure}")
            except OSError:
                pass  # a closed, refused or timed-out connection is a proper reaction to an attack
            self.findings.attacks[attack.__name__] += 1

    def _work(self, client: RawClient, until: float, attacks: float) -> None:
        """Produce and fetch records all the time, and delete the topics that attacks have created."""
        sampled = tidied = time.monotonic()
        while (now := time.monotonic()) < until and self.findings.attacks.total() < attacks:
            number = b"%d" % self.findings.answered
            offset = append(client, GOOD, number)
            (found,) = decode_records(client.fetch(GOOD, 0, offset))
            assert found.value == number, found
            self.findings.answered += 1
            self.findings.slowest_s = max(self.findings.slowest_s, time.monotonic() - now)
            if now - sampled >= SAMPLE_S or not self.findings.resident:
                self.findings.resident.append(self._process.memory_info().rss)
                sampled = now
            if now - tidied >= TIDY_S:
                self._tidy(client)
                tidied = now
            self._over.wait(0.01)

    def _tidy(self, client: RawClient) -> None:
        listed = client.request(MetadataRequest(topics=None), 12).topics
        strange = [each.name for each in listed if each.name not in (GOOD, VICTIM) and not each.is_internal]
        topics = [DeleteTopicState(name=name) for name in strange]
        client.request(DeleteTopicsRequest(topics=topics, timeout_ms=PATIENCE_MS), 6)
        if VICTIM not in [each.name for each in listed]:
            create_topic(client, VICTIM)

    def _judge_run(self, descriptors: int, is_long: bool) -> None:
        problems, resident = self.findings.problems, self.findings.resident
        if self._broker.process.poll() is not None:
            problems.append(f"the broker ended with status {self._broker.process.returncode}")
            return
        deadline = time.monotonic() + PATIENCE_S
        while self._process.num_fds() > descriptors + SPARE_DESCRIPTORS and time.monotonic() < deadline:
            time.sleep(SAMPLE_S)
        if (left := self._process.num_fds()) > descriptors + SPARE_DESCRIPTORS:
            problems.append(f"{left} descriptors are open, and {descriptors} were before")
        if (peak := max(resident)) > PEAK_BYTES_MAX:
            problems.append(f"{peak >> 20} MB of memory at most")
        if is_long:
            _, middle, last = split_in_thirds(resident)
            if (growth := median(last) - median(middle)) > GROWTH_BYTES_MAX:
                problems.append(f"memory grew by {int(growth) >> 20} MB from the second third to the last")
        problems += find_tracebacks(Path(self._broker.log).read_text())


def find_tracebacks(log: str) -> list[str]:
    """Each log line that has a traceback, once however often it occurs."""
    events = [event for event in re.split(r"^(?=\S)", log, flags=re.MULTILINE) if "Traceback" in event]
    by_end = {event.strip().splitlines()[-1]: event for event in reversed(events)}
    return [f"the log has a traceback:\n{event[:3000]}" for event in by_end.values()]
