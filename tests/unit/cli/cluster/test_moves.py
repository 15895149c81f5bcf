"""What `ottla cluster reassign` does and says, with a cluster that answers at once. tests/cluster has real ones."""

import json
from contextlib import nullcontext
from copy import deepcopy

import pytest

from ottla.cli import main
from ottla.cli.cluster.execution import AT_ONCE_MAX
from ottla.cli.cluster.overview import observe
from ottla.cli.cluster.throttle import FOLLOWERS, LEADERS, RATES, set_limits
from ottla.cli.command_error import USAGE_ERROR
from ottla.client.connection import Unreachable
from ottla.errors import ErrorCode
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.unit.cli.cluster.stub_cluster import BROKER, BROKERS, TOPIC, StubCluster

ORDERS = [TopicPartition("orders", number) for number in range(2)]
PAYMENTS = TopicPartition("payments", 0)


class Operator:
    """Runs commands with the cluster."""

    def __init__(
        self, cluster: StubCluster, output: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._output = output
        monkeypatch.setattr("ottla.cli.cluster.moves.open_own_client", lambda options: nullcontext(cluster))

    def reassign(self, *words: str, status: int = 0) -> tuple[str, str]:
        """What the command prints to the two streams. It ends with this status."""
        assert main(["cluster", "reassign", *words]) == status
        printed = self._output.readouterr()
        return printed.out, printed.err


@pytest.fixture
def cluster() -> StubCluster:
    return StubCluster({ORDERS[0]: (1,), ORDERS[1]: (1,), PAYMENTS: (1,)})


@pytest.fixture
def operator(cluster: StubCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Operator:
    return Operator(cluster, capsys, monkeypatch)


def limit(cluster: StubCluster, where: TopicPartition, target: int) -> None:
    """A limited move of another command that goes on."""
    cluster.targets[where] = (target,)
    cluster.settings_of[TOPIC, where.topic] = {
        LEADERS: f"{where.partition}:1",
        FOLLOWERS: f"{where.partition}:{target}",
    }
    for broker in BROKERS:
        cluster.settings_of[BROKER, str(broker)] = dict.fromkeys(RATES, "1000")


def test_a_limit_ends_although_another_partition_of_the_topic_moves_without_one(
    cluster: StubCluster, operator: Operator
) -> None:
    cluster.targets[ORDERS[1]] = (3,)
    moved = operator.reassign("-t", "orders", "-p", "0", "--to", "2", "--throttle", "50M")
    assert moved == ("1 partition moved\n", "")
    assert cluster.find_limits() == {}


def test_the_limit_of_another_command_stays_and_is_named(cluster: StubCluster, operator: Operator) -> None:
    limit(cluster, PAYMENTS, 3)
    moved, said = operator.reassign("-t", "orders", "-p", "0", "--to", "2", "--throttle", "50M")
    assert moved == "1 partition moved\n"
    assert said == (
        "the limit of the rate stays for moves that are under way: payments-0\n"
        "(ottla cluster reassign --unthrottle removes it)\n"
    )
    assert sorted(cluster.find_limits()) == ["1", "2", "3", "payments"]


def test_a_second_move_of_a_topic_leaves_the_first_one_limited(cluster: StubCluster) -> None:
    limit(cluster, ORDERS[1], 3)
    cluster.settings_of[TOPIC, "orders"][LEADERS] += ",0:3"  # of a move that has ended
    partitions = {each.where: each for each in observe(cluster, settings=False).partitions}
    set_limits(cluster, BROKERS, {ORDERS[0]: (2,)}, partitions, 50_000_000)
    assert cluster.find_limits()["orders"] == {LEADERS: "1:1,0:1", FOLLOWERS: "1:3,0:2"}


def test_a_dry_run_removes_no_limit(cluster: StubCluster, operator: Operator) -> None:
    limit(cluster, PAYMENTS, 3)
    before = deepcopy(cluster.find_limits())
    would = operator.reassign("--unthrottle", "--dry-run")
    assert would == ("the limit would be removed from 3 brokers and 1 topic\n", "")
    assert cluster.find_limits() == before
    assert operator.reassign("--unthrottle") == ("the limit is removed from 3 brokers and 1 topic\n", "")
    assert cluster.find_limits() == {}


@pytest.mark.parametrize(
    "words",
    ["--list --dry-run", "--list --no-wait", "--cancel --no-wait", "--cancel --throttle 5M", "--unthrottle --no-wait"],
)
def test_an_option_that_would_have_no_effect_is_refused(cluster: StubCluster, operator: Operator, words: str) -> None:
    limit(cluster, PAYMENTS, 3)
    _, said = operator.reassign(*words.split(), status=USAGE_ERROR)
    assert words.split()[1] in said
    assert cluster.targets and cluster.find_limits()


@pytest.mark.parametrize("words", ["-t payments --to 1 --throttle 50M", "--cancel"])
def test_rates_that_people_have_set_stay(cluster: StubCluster, operator: Operator, words: str) -> None:
    cluster.settings_of[TOPIC, "orders"] = {LEADERS: "*", FOLLOWERS: "*"}
    for broker in BROKERS:
        cluster.settings_of[BROKER, str(broker)] = dict.fromkeys(RATES, "1000")
    before = deepcopy(cluster.find_limits())
    assert operator.reassign(*words.split()) in (("nothing to move\n", ""), ("0 moves cancelled\n", ""))
    assert cluster.find_limits() == before


def test_a_limit_that_an_interrupted_command_has_left_is_removed(cluster: StubCluster, operator: Operator) -> None:
    limit(cluster, PAYMENTS, 1)
    cluster.targets.clear()
    assert operator.reassign("-t", "payments", "--to", "1", "--throttle", "50M") == ("nothing to move\n", "")
    assert cluster.find_limits() == {}


def test_a_command_without_a_limit_names_that_of_an_interrupted_one_and_removes_it(
    cluster: StubCluster, operator: Operator
) -> None:
    """Otherwise it would wait for hours and not say why, and the limit would stay for moves of next year."""
    limit(cluster, PAYMENTS, 3)
    moved, said = operator.reassign("--all-topics", "--to", "3")
    assert moved == "3 partitions moved\n"
    assert said == (
        "these moves go on with the limit of the rate that an earlier command has set: payments-0\n"
        "(ottla cluster reassign --unthrottle removes it)\n"
    )
    assert cluster.find_limits() == {}
    limit(cluster, PAYMENTS, 1)
    operator.reassign("-t", "payments", "--to", "1", "--no-wait")
    assert cluster.find_limits(), "the moves have only begun"


def test_bytes_that_a_broker_does_not_tell_are_not_shown_as_0(
    cluster: StubCluster, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Broker 1 leads and has two directories, broker 2 has no log yet, broker 3 does not answer.
    cluster.targets[ORDERS[0]] = (2, 3)
    directories = {1: [describe_directory(70), describe_directory(30)], 2: [DescribeLogDirsResult()]}
    monkeypatch.setattr("ottla.cli.cluster.directories._describe", lambda *arguments: directories)
    listed, _ = operator.reassign("--list")
    assert listed.splitlines()[1].split() == ["orders-0", "2,3,1", "2,3", "1", "0,-", "100"]
    listed, _ = operator.reassign("--list", "--format", "json")
    assert json.loads(listed)[0]["bytes_added"] == [0, None]
    directories[2] = [DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR)]
    assert "-,-" in operator.reassign("--list")[0]


def describe_directory(size: int) -> DescribeLogDirsResult:
    partition = DescribeLogDirsPartition(partition_index=0, partition_size=size)
    return DescribeLogDirsResult(topics=[DescribeLogDirsTopic(name="orders", partitions=[partition])])


MOVE = ("-t", "orders", "-p", "0", "--to", "2", "--throttle", "50M")
SILENT = Unreachable("localhost:3: no answer within 35 s")
LEFT = (
    "the limit of the rate was not removed everywhere: broker 3 may still have it (cannot connect to localhost:3: no "
    f"answer within 35 s): ottla config delete broker 3 {' '.join(RATES)}"
)


def test_a_limit_that_cannot_be_set_is_said_before_what_is_left_of_it(cluster: StubCluster, operator: Operator) -> None:
    cluster.unreachable[3] = SILENT
    printed, said = operator.reassign(*MOVE, status=1)
    assert printed == ""
    assert said == (
        "ottla: nothing was moved: cannot limit broker 3: cannot connect to localhost:3: no answer within 35 s; "
        f"{LEFT}\n"
    )
    assert cluster.replicas[ORDERS[0]] == (1,) and cluster.find_limits() == {}


def test_what_was_not_moved_is_said_although_the_limit_stays_too(
    cluster: StubCluster, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_broker(*arguments: object) -> list[TopicPartition]:
        cluster.unreachable[3] = SILENT
        return [ORDERS[0]]

    monkeypatch.setattr("ottla.cli.cluster.execution._find_unmoved", lose_broker)
    printed, said = operator.reassign(*MOVE, status=1)
    assert printed == "0 partitions moved\n"
    assert said == f"ottla: 1 partition not moved: cancelled or changed meanwhile: orders-0; {LEFT}\n"


def test_what_was_not_cancelled_is_said_although_the_limit_stays_too(cluster: StubCluster, operator: Operator) -> None:
    limit(cluster, PAYMENTS, 3)
    cluster.refused[PAYMENTS] = "there is no such move"
    cluster.unreachable[3] = SILENT
    _, said = operator.reassign("--cancel", status=1)
    assert said == f"ottla: payments-0: there is no such move; {LEFT}\n"


def test_a_refused_move_leaves_no_limit(cluster: StubCluster, operator: Operator) -> None:
    cluster.refused[ORDERS[0]] = "there is no broker 9"
    assert operator.reassign(*MOVE, status=1) == ("", "ottla: orders-0: there is no broker 9\n")
    assert cluster.find_limits() == {}


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), 130), (Unreachable("localhost:1: the connection is closed"), 1)]
)
def test_moves_that_were_requested_may_go_on(
    cluster: StubCluster, operator: Operator, error: BaseException, status: int
) -> None:
    # Whether the broker has begun them before it answered is not known: so their limit stays, and the command says so.
    cluster.moves_fail = error
    _, said = operator.reassign(*MOVE, status=status)
    assert said.startswith("Moves that have begun go on, limited to 50000000 bytes a second.\n")
    assert "reassign --unthrottle " in said
    assert cluster.find_limits()["orders"] == {LEADERS: "0:1", FOLLOWERS: "0:2"}


def test_ctrl_c_before_the_request_leaves_no_limit(cluster: StubCluster, operator: Operator) -> None:
    # If a broker does not answer in time, what it may have is named.
    cluster.unreachable[3] = KeyboardInterrupt()
    _, said = operator.reassign(*MOVE, status=130)
    assert said == (
        "the limit of the rate was not removed everywhere: ottla cluster reassign --unthrottle removes it\n"
    )
    assert cluster.replicas[ORDERS[0]] == (1,) and cluster.find_limits() == {}


@pytest.fixture
def many(cluster: StubCluster) -> StubCluster:
    """With one partition more than the command puts into two requests."""
    cluster.replicas = {TopicPartition("wide", number): (1,) for number in range(2 * AT_ONCE_MAX + 1)}
    return cluster


def test_more_partitions_than_one_request_may_have_are_moved(many: StubCluster, operator: Operator) -> None:
    moved, _ = operator.reassign("--all-topics", "--to", "2")
    assert moved == f"{2 * AT_ONCE_MAX + 1} partitions moved\n"
    assert set(many.replicas.values()) == {(2,)}


def test_what_was_requested_before_a_broker_refuses_goes_on(many: StubCluster, operator: Operator) -> None:
    many.whole_errors = [0, ErrorCode.REQUEST_TIMED_OUT]
    moved, said = operator.reassign("--all-topics", "--to", "2", status=1)
    assert moved == f"{AT_ONCE_MAX} partitions moved\n"
    refused = f"{AT_ONCE_MAX + 1} of {2 * AT_ONCE_MAX + 1} partitions refused: wide-{AT_ONCE_MAX}: ZooKeeper is away; "
    assert said.startswith(f"ottla: {refused}")


def test_a_request_that_is_refused_as_a_whole_is_said_once(many: StubCluster, operator: Operator) -> None:
    many.whole_errors = [ErrorCode.REQUEST_TIMED_OUT]
    assert operator.reassign("--all-topics", "--to", "2", status=1) == (
        "",
        "ottla: nothing was moved: ZooKeeper is away\n",
    )
