"""The simulation of a cluster finds bugs: each of these clusters has one, and a few seeds are enough to tell."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.cluster.shared_log import SharedLog
from ottla.replication import fetcher
from ottla.replication.fetcher import Fetcher
from ottla.replication.followed import Followed
from ottla.replication.following import UP_TO_DATE, Truncate, Verdict, judge
from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from tests.simulation import cluster_scenario
from tests.simulation.cluster_scenario import run
from tests.simulation.store.test_store import send_again, without_alive_check

SEEDS_MAX = 200

Replacement = Callable[..., Any]

REAL_ADD = Fetcher.add


def commit_alone(in_sync: InSync, own_end: int, leader_end: int, eligibility: Any) -> int:
    return own_end


def truncate_to_high_watermark(self: Fetcher, followed: Followed) -> None:
    partition = followed.partition
    if partition.log.end_offset > partition.high_watermark.value:
        self._truncations.truncate(partition, partition.high_watermark.value)
    REAL_ADD(self, followed)


def keep_what_diverges(partition: Any, leader: int, asked: Any, result: Any) -> Verdict:
    verdict = judge(partition, leader, asked, result)
    return UP_TO_DATE if isinstance(verdict, Truncate) else verdict


def serve_everything(self: Partition, *args: Any, **options: Any) -> Any:
    self.high_watermark.advance(self.log.end_offset)
    return REAL_READ(self, *args, **options)


REAL_READ = Partition.read


MUTANTS: dict[str, tuple[Any, str, Replacement, int]] = {
    "waits for no follower": (InSync, "find_committed", commit_alone, 10),
    "truncates followers to the high watermark": (Fetcher, "add", truncate_to_high_watermark, 110),
    "keeps records that the leader does not have": (fetcher, "judge", keep_what_diverges, 10),
    "shows consumers what is not committed": (Partition, "read", serve_everything, 35),
    "sends a lost compare-and-set again as it was": (SharedLog, "append", send_again, 0),
    "appends without the alive check": (SharedLog, "_list_membership_operations", without_alive_check, 0),
}
"""Where the bug is, and the first seed: rare coincidences are not far from there. Other bugs of elections are found by
the simulation of the metadata, of the metadata log by that of the store; `test_scripts` has two of ISRs."""


SLOW = ("keeps records that the leader does not have",)
"""Bugs that take the simulation long to find."""

ADMINISTERED = ("appends without the alive check",)
"""Bugs that are found if the metadata is changed by requests, while brokers are out of the cluster."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in MUTANTS]
)
def test_a_cluster_with_a_bug_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Fixed seeds: this is about what the simulation can see, not about luck.
    owner, attribute, replacement, first = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, replacement)
    if name in ADMINISTERED:
        monkeypatch.setattr(cluster_scenario, "ADMINISTERED", 1.0)
    for seed in range(first, first + SEEDS_MAX):
        if run(seed, trace_lines=1).problems:
            return
    raise AssertionError(f"{SEEDS_MAX} seeds saw nothing wrong with a cluster that {name}")
