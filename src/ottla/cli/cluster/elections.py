"""`ottla cluster elect` and `ottla cluster unregister`."""

import argparse
from typing import TYPE_CHECKING

from ottla.cli.client import OPERATION_MS, find_topic, open_own_client
from ottla.cli.cluster.actions import Actions, add_action
from ottla.cli.cluster.obstacles import explain_obstacles, mark_obstacles
from ottla.cli.cluster.overview import explain_code, join_first, observe, raise_for_error
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import parse_broker_id, parse_partition
from ottla.cli.output import counted
from ottla.errors import ErrorCode
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult

PREFERRED, UNCLEAN = 0, 1


def add_actions(actions: Actions) -> None:
    elect = add_action(actions, "elect", "give leadership back to the preferred replicas", _elect)
    elect.add_argument("-t", "--topic", help="only this topic (default: all topics)")
    elect.add_argument(
        "-p", "--partition", type=parse_partition, action="append", help="only this partition; may be repeated"
    )
    elect.add_argument(
        "--unclean",
        action="store_true",
        help="let a replica lead that is not in sync, where no other can: acknowledged records may be lost",
    )
    unregister = add_action(actions, "unregister", "forget a broker that is gone for good", _unregister)
    unregister.add_argument("broker", type=parse_broker_id, metavar="BROKER")


def _elect(options: argparse.Namespace) -> int:
    from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

    if options.unclean and options.topic is None:
        raise CommandError("--unclean needs --topic: it can lose records, so it is not for all topics", USAGE_ERROR)
    if options.partition and options.topic is None:
        raise CommandError("--partition needs --topic", USAGE_ERROR)
    wanted = None
    with open_own_client(options) as own:
        if options.topic is not None:
            numbers = options.partition or [each.partition_index for each in find_topic(own, options.topic).partitions]
            wanted = [TopicPartitions(topic=options.topic, partitions=sorted(set(numbers)))]
        request = ElectLeadersRequest(
            election_type=UNCLEAN if options.unclean else PREFERRED, topic_partitions=wanted, timeout_ms=OPERATION_MS
        )
        results = elect_leaders(own, request)
    print(f"{counted(sum(not each.error_code for each in results.values()), 'leader')} elected")
    failures = [
        f"{where}: {explain_code(each.error_code, each.error_message)}"
        for where, each in results.items()
        if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    if failures:
        raise CommandError(join_first(failures))
    return 0


def elect_leaders(own: "Client", request: "ElectLeadersRequest") -> "dict[TopicPartition, PartitionResult]":
    """The result of each partition. A broker that elects only so many leaders at once is asked again for the others."""
    elected: dict[TopicPartition, PartitionResult] = {}
    while True:
        answer = own.connect_any().ask(request)
        if answer.error_code:
            done = f"{counted(len(elected), 'leader')} elected" if elected else "no leader was elected"
            raise CommandError(f"{done}: {_explain_refusal(own, answer)}")
        results = {
            TopicPartition(topic.topic, each.partition_id): each
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }
        now = {where: each for where, each in results.items() if not each.error_code}
        elected |= now
        left_out = any(each.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED for each in results.values())
        if not (now and left_out):
            return results | elected


def _explain_refusal(own: "Client", answer: "ElectLeadersResponse") -> str:
    """Why a broker has elected nothing. It can say so only beside a partition that it was asked for."""
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            if each.error_message:
                return each.error_message
    return "; ".join([explain_code(answer.error_code, None), *explain_obstacles(mark_obstacles(own, observe(own)))])


def _unregister(options: argparse.Namespace) -> int:
    from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

    with open_own_client(options) as own:
        answer = own.connect_any().ask(UnregisterBrokerRequest(broker_id=options.broker))
    raise_for_error(answer, f"broker {options.broker} was not unregistered")
    print(f"broker {options.broker} unregistered")
    return 0
