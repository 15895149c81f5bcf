"""`ottla cluster elect` with more partitions than a broker takes at once."""

from contextlib import nullcontext
from typing import Any

import pytest

from ottla.cli import main
from ottla.errors import ErrorCode
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

AT_ONCE = 2


class Broker:
    """Elects two leaders at once, of the partitions that it names. One cannot get another leader."""

    def __init__(self) -> None:
        self.left = list(range(5))
        self.requests = 0

    def connect_any(self) -> "Broker":
        return self

    def ask(self, request: ElectLeadersRequest) -> Any:
        self.requests += 1
        results = [PartitionResult(partition_id=9, error_code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
        results += [PartitionResult(partition_id=number) for number in self.left[:AT_ONCE]]
        results += [
            PartitionResult(partition_id=number, error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
            for number in self.left[AT_ONCE:]
        ]
        self.left = self.left[AT_ONCE:]
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic="orders", partition_result=results)]
        )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cluster elect", "5 leaders elected"),
        (
            "kafka leader-election --bootstrap-server localhost:1 --election-type preferred --all-topic-partitions",
            "for partitions orders-4, orders-0, orders-1, orders-2, orders-3",
        ),
    ],
)
def test_a_broker_is_asked_again_for_leaders_that_were_too_many_at_once(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Broker()
    for module in ("cluster.elections.open_own_client", "kafka.leader_election.open_client"):
        monkeypatch.setattr(f"ottla.cli.{module}", lambda options: nullcontext(broker))
    assert main(command.split()) == 1
    printed = capsys.readouterr()
    assert said in printed.out
    assert printed.err == "ottla: orders-9: PREFERRED_LEADER_NOT_AVAILABLE\n"
    assert broker.requests == 3
