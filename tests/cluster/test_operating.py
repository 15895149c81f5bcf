"""Operating a cluster of four brokers with `ottla cluster`: moves, elections, a broker that leaves for good."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.cli import main
from ottla.cli.cluster import throttle
from ottla.cli.cluster.overview import observe
from ottla.cli.command_error import CommandError
from ottla.client.client import Client
from ottla.testing import LocalCluster
from ottla.testing.local_cluster import wait_until
from ottla.topic_partition import TopicPartition
from tests.cluster.coordination import open_client
from tests.patience import PATIENCE_S

RECORDS = 500


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with ottla.testing.cluster(brokers=4) as local:
        local.create_topic("orders", partitions=4, replication_factor=3)
        producer = Producer({"bootstrap.servers": local.bootstrap, "acks": "all"})
        for _ in range(RECORDS):
            producer.produce("orders", bytes(1000))
        assert producer.flush(PATIENCE_S) == 0
        yield local


class Operator:
    """Runs commands against the cluster."""

    def __init__(self, cluster: LocalCluster, output: pytest.CaptureFixture[str]) -> None:
        self._cluster = cluster
        self._output = output

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def run(self, *words: str, status: int = 0) -> str:
        """What the command prints. It ends with this status."""
        self._output.readouterr()
        ended = main([*words, "-b", self._cluster.bootstrap])
        printed = self._output.readouterr()
        assert ended == status, printed.err
        return printed.out if status == 0 else printed.err

    def read(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--format", "json"))

    def replicas(self) -> list[list[int]]:
        (topic,) = self.read("topic", "describe", "orders")
        assert sum(partition["end"] for partition in topic["partitions"]) == RECORDS
        assert all(sorted(each["in_sync"]) == sorted(each["replicas"]) for each in topic["partitions"])
        return [partition["replicas"] for partition in topic["partitions"]]


@pytest.fixture
def operator(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(cluster, capsys)


def test_replicas_move_and_leaders_follow(operator: Operator) -> None:
    operator.run("cluster", "reassign", "--topic", "orders", "--to", "4,3,2")
    assert operator.replicas() == [[4, 3, 2]] * 4
    operator.run("cluster", "elect")
    assert [each["leaders"] for each in operator.read("cluster", "brokers")] == [0, 0, 0, 4]
    assert operator.read("cluster", "status")["not_led_by_the_preferred_replica"] == 0
    operator.run("cluster", "reassign", "--topic", "orders", "--over", "1,2,3,4", "--throttle", "100M")
    assert [replicas[0] for replicas in operator.replicas()] == [1, 2, 3, 4]
    limited = operator.read("config", "get", "topic", "orders", "--changed")
    assert "throttled" not in str(limited), "the limit ends with the move"


def test_a_limit_is_removed_wherever_it_can_be(operator: Operator, cluster: LocalCluster) -> None:
    # A broker that is down at the end keeps it, which is said, and no other.
    where, brokers = TopicPartition("orders", 0), [broker.id for broker in cluster.brokers]
    with open_client(cluster) as client:
        partitions = {each.where: each for each in observe(client).partitions}
        throttle.set_limits(client, brokers, {where: (4, 3, 2)}, partitions, 1000)
    cluster.brokers[0].kill()
    settings = {**cluster.client_settings, "default.api.timeout.ms": "3000"}
    with closing(Client(settings)) as client, pytest.raises(CommandError) as refused:
        throttle.remove_limits(client, brokers, ["orders"])
    assert "ottla config delete broker 1 leader.replication.throttled.rate" in str(refused.value)
    assert "broker 2" not in str(refused.value) and "topic" not in str(refused.value)
    limited = [operator.read("config", "get", "topic", "orders", "--changed")]
    limited += [operator.read("config", "get", "broker", str(broker), "--changed") for broker in brokers[1:]]
    assert "throttled" not in str(limited)


def test_a_move_that_is_cancelled_leaves_the_replicas_as_they_were(operator: Operator, cluster: LocalCluster) -> None:
    before = operator.replicas()
    for broker in cluster.brokers:  # so slowly that the move does not end by itself
        for side in ("leader", "follower"):
            operator.run("config", "set", "broker", str(broker.id), f"{side}.replication.throttled.rate=1")
    operator.run("config", "set", "topic", "orders", "leader.replication.throttled.replicas=*")
    operator.run("config", "set", "topic", "orders", "follower.replication.throttled.replicas=*")
    targets = [[4, 3, 2] if replicas != [4, 3, 2] else [1, 2, 3] for replicas in before]
    operator.run(
        "cluster", "reassign", "--topic", "orders", "-p", "0", "--to", ",".join(map(str, targets[0])), "--no-wait"
    )
    under_way = operator.read("cluster", "reassign", "--list")
    assert all(each["partition"] == "orders-0" for each in under_way)
    operator.run("cluster", "reassign", "--cancel")
    assert operator.read("cluster", "reassign", "--list") == []
    if under_way:
        wait_until(lambda: operator.read("cluster", "status")["under_replicated"] == 0)
        # As in Kafka, the order may be another: what the move wanted comes first.
        assert list(map(sorted, operator.replicas())) == list(map(sorted, before))


@pytest.fixture
def slow(capsys: pytest.CaptureFixture[str]) -> Iterator[Operator]:
    """A cluster in which a move of the topic does not end by itself at one byte a second: it has 200 fetches to do."""
    with ottla.testing.cluster(replica_fetch_max_bytes=10_000) as local:
        local.create_topic("orders", replication_factor=1)
        operator = Operator(local, capsys)
        operator.run("cluster", "reassign", "--topic", "orders", "--to", "1")
        producer = Producer({"bootstrap.servers": local.bootstrap, "acks": "all", "batch.num.messages": "10"})
        for _ in range(2000):
            producer.produce("orders", bytes(1000))
        assert producer.flush(PATIENCE_S) == 0
        yield operator


class Terminal:
    """A limited move of the topic to brokers 2 and 3 in a child process. It waits for its end."""

    def __init__(self, operator: Operator) -> None:
        words = ["cluster", "reassign", "--topic", "orders", "--to", "2,3", "--throttle", "1"]
        self._child = subprocess.Popen(
            [sys.executable, "-m", "ottla", *words, "-b", operator.bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._child.stderr is not None
        assert self._child.stderr.readline() == "1 of 1 partition still moving\n"

    def interrupt(self) -> tuple[int, str]:
        self._child.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> tuple[int, str]:
        """The status, and what was printed to the end."""
        output, errors = self._child.communicate(timeout=PATIENCE_S)
        return self._child.returncode, output + errors


def is_limited(operator: Operator) -> bool:
    settings = operator.read("config", "get", "topic", "orders", "--changed")
    settings += [each for broker in "123" for each in operator.read("config", "get", "broker", broker, "--changed")]
    return "throttled" in str(settings)


def test_a_move_that_is_cancelled_elsewhere_is_no_success(slow: Operator) -> None:
    # It goes on with its limit after Ctrl-C, and the same command goes on to wait for it.
    status, said = Terminal(slow).interrupt()
    assert status == 130
    assert said.startswith("Moves that have begun go on, limited to 1 byte a second.\n")
    assert "reassign --cancel " in said and "reassign --unthrottle " in said
    assert is_limited(slow)
    (moving,) = slow.read("cluster", "reassign", "--list", "--topic", "orders", "-p", "0")
    assert (moving["adding"], moving["removing"]) == ([2, 3], [1])
    assert all(0 <= copied < moving["bytes_of_leader"] for copied in moving["bytes_added"])
    waiting = Terminal(slow)
    would = slow.run("cluster", "reassign", "--cancel", "--dry-run")
    assert would == "1 move would be cancelled\n  orders-0\n"
    assert slow.run("cluster", "reassign", "--cancel") == "1 move cancelled\n"
    status, said = waiting.end()
    assert (status, said.splitlines()) == (
        1,
        ["0 partitions moved", "ottla: 1 partition not moved: cancelled or changed meanwhile: orders-0"],
    )
    assert not is_limited(slow)


def test_the_limit_of_a_command_that_was_interrupted_can_be_removed(slow: Operator) -> None:
    Terminal(slow).interrupt()
    removed = slow.run("cluster", "reassign", "--unthrottle")
    assert removed == "the limit is removed from 3 brokers and 1 topic\n"
    assert not is_limited(slow)
    wait_until(lambda: slow.read("cluster", "reassign", "--list") == [])
    again = ("cluster", "reassign", "--topic", "orders", "--to", "2,3", "--throttle", "1")
    assert slow.run(*again) == "nothing to move\n"


def test_what_can_move_does_although_something_is_refused(operator: Operator, tmp_path: Path) -> None:
    operator.run("cluster", "reassign", "--topic", "orders", "--to", "1,2,3")
    entries = [{"topic": "orders", "partition": number, "replicas": [4, 9 * number + 1]} for number in (0, 1)]
    (tmp_path / "plan").write_text(json.dumps({"partitions": entries}))
    refused = operator.run("cluster", "reassign", "--plan", str(tmp_path / "plan"), "--throttle", "100M", status=1)
    assert refused.endswith("ottla: 1 of 2 partitions refused: orders-1 cannot be reassigned: there is no broker 10\n")
    assert operator.replicas() == [[4, 1], [1, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert not is_limited(operator)


def test_a_cluster_of_one_broker_grows_to_three_replicas_of_everything(
    operator: Operator, cluster: LocalCluster
) -> None:
    operator.run("cluster", "reassign", "--all-topics", "--to", "1")
    operator.run("cluster", "reassign", "--all-topics", "--over", "1,2,3,4", "--replicas", "3")
    assert all(len(replicas) == 3 and 1 in replicas for replicas in operator.replicas())
    operator.run("cluster", "elect")
    brokers = operator.read("cluster", "brokers")
    assert [each["replicas"] for each in brokers] == [4, 3, 3, 2]
    assert [each["preferred_leaders"] for each in brokers] == [1, 1, 1, 1]


def test_moves_that_nobody_knows_are_neither_listed_nor_cancelled(operator: Operator) -> None:
    for action in ("--list", "--cancel"):
        assert "there is no topic 'order'; did" in operator.run(
            "cluster", "reassign", action, "--topic", "order", status=1
        )
        assert "has no partition 9" in operator.run(
            "cluster", "reassign", action, "--topic", "orders", "-p", "9", status=1
        )
    refused = operator.run("cluster", "reassign", "--plan", "plan.json", "--topic", "orders", status=2)
    assert refused == "ottla: --plan cannot be limited to a --topic\n"


def test_a_broker_is_drained_stopped_and_forgotten(operator: Operator, cluster: LocalCluster) -> None:
    refused = operator.run("cluster", "unregister", "2", status=1)
    assert "stop it before" in refused
    operator.run("cluster", "drain", "2")
    assert all(2 not in replicas and len(replicas) == 3 for replicas in operator.replicas())
    cluster.brokers[1].stop()
    wait_until(lambda: [each["id"] for each in operator.read("cluster", "status")["brokers"] if each["fenced"]] == [2])
    operator.run("cluster", "unregister", "2")
    assert [each["id"] for each in operator.read("cluster", "brokers")] == [1, 3, 4]
    assert operator.replicas()


def test_a_cordoned_broker_is_shown_and_gets_nothing(operator: Operator) -> None:
    operator.run("cluster", "reassign", "--topic", "orders", "--to", "1,2,3")
    operator.run("config", "set", "broker", "4", "cordoned.log.dirs=*")
    wait_until(lambda: operator.read("cluster", "brokers")[3]["state"] == "cordoned")
    assert "4 brokers alive; broker 4 cordoned\n" in operator.run("cluster", "status")
    refused = operator.run("cluster", "reassign", "--topic", "orders", "--to", "4,3,2", status=1)
    assert refused.startswith("ottla: 4 of 4 partitions refused: orders-0 cannot be reassigned: all directories of ")
    assert refused.endswith("; ... and 1 more\n")
    assert "no other broker that is alive and not cordoned" in operator.run("cluster", "drain", "1", status=1)
    operator.run("topic", "delete", "orders")
    operator.run("topic", "create", "single", "--partitions", "6", "--replication-factor", "1")
    operator.run("cluster", "drain", "1")
    assert [each["replicas"] for each in operator.read("cluster", "brokers")] == [0, 3, 3, 0]


def test_a_broker_that_was_forgotten_can_be_drained(operator: Operator, cluster: LocalCluster) -> None:
    cluster.brokers[1].kill()
    wait_until(lambda: [each["id"] for each in operator.read("cluster", "status")["brokers"] if each["fenced"]] == [2])
    operator.run("cluster", "unregister", "2")
    operator.run("cluster", "drain", "2")
    assert all(2 not in replicas and len(replicas) == 3 for replicas in operator.replicas())
    assert operator.run("cluster", "drain", "2", status=1) == "ottla: there is no broker 2, only 1, 3, 4\n"


def test_a_lost_broker_is_shown_until_it_is_back(operator: Operator, cluster: LocalCluster) -> None:
    assert operator.run("cluster", "status", "--check")
    cluster.brokers[0].kill()
    wait_until(lambda: operator.read("cluster", "status")["under_replicated"] == 3)
    assert "under-replicated" in str(operator.read("cluster", "status")["in_trouble"])
    assert main(["cluster", "status", "--check", "-b", cluster.bootstrap]) == 1
    cluster.brokers[0].restart()
    wait_until(lambda: operator.read("cluster", "status")["under_replicated"] == 0)
    operator.run("cluster", "elect")
    assert [each["leaders"] for each in operator.read("cluster", "brokers")] == [1, 1, 1, 1]


def test_the_status_names_replicas_that_may_lead_although_they_are_not_in_sync(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # With fewer replicas in sync than min.insync.replicas nothing is acknowledged, so the one that falls out of sync
    # next misses nothing: an offline partition has a leader again when it is started.
    with ottla.testing.cluster() as cluster:
        operator = Operator(cluster, capsys)
        cluster.create_topic("orders", min_insync_replicas=2)
        (topic,) = operator.read("topic", "describe", "orders")
        leader = topic["partitions"][0]["leader"]
        first, second = (broker for broker in cluster.brokers if broker.id != leader)
        first.kill()
        wait_until(lambda: first.id not in read_trouble(operator).get("in_sync", [first.id]))
        assert read_trouble(operator)["eligible"] == []
        second.kill()
        wait_until(lambda: read_trouble(operator)["in_sync"] == [leader])
        assert read_trouble(operator)["eligible"] == [second.id]


def read_trouble(operator: Operator) -> dict[str, Any]:
    """The row of the first partition in trouble; empty if there is none."""
    rows: list[dict[str, Any]] = operator.read("cluster", "status")["in_trouble"]
    return rows[0] if rows else {}
