"""Carries out a plan of a reassignment: begins the moves, waits for them, and says what has come of them."""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.cluster import throttle
from ottla.cli.cluster.overview import (
    Overview,
    PartitionState,
    explain_code,
    join_first,
    list_reassignments,
    raise_for_error,
)
from ottla.cli.cluster.plans import Plan, leave_out_unchanged, write_plan
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.output import counted, show_json
from ottla.cli.progress import ProgressLine
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

AT_ONCE_MAX = 5000
"""Partitions of one request. A broker of Ottla begins as many at once, however many replicas they have."""

LOOK_S = 0.5
"""Pause between two looks at replicas that are moving."""

LOOKS_AT_THE_END = 4
"""How often the final replicas are compared with the plan before a partition counts as not moved. In Kafka, the broker
that answers may learn of the end of a move later than the controller."""


def carry_out(own: "Client", overview: Overview, wanted: Plan, options: argparse.Namespace) -> int:
    """Move what the plan moves, as the options of the command say."""
    if options.throttle is not None and options.no_wait:
        raise CommandError("--throttle needs waiting: the limit is removed when the move has ended", USAGE_ERROR)
    known = {partition.where: partition for partition in overview.partitions}
    plan = leave_out_unchanged(wanted, known)
    if options.dry_run:
        show_json(write_plan(plan))
        return 0
    if not plan:
        print("nothing to move", flush=True)
        # A command that was interrupted may have left its limit.
        failures = [] if options.throttle is None else throttle.remove_finished_limits(own, overview)
    else:
        failures = _move(own, overview, plan, known, options)
    if failures:
        raise CommandError("; ".join(failures))
    return 0


def _move(
    own: "Client",
    overview: Overview,
    plan: Plan,
    known: Mapping[TopicPartition, PartitionState],
    options: argparse.Namespace,
) -> list[str]:
    """Begin the moves, wait for them, and remove their limit. Returns what failed, in the order in which it did."""
    begun, failures = _begin(own, overview, plan, known, options.throttle)
    is_limited = options.throttle is not None
    if begun and not is_limited:
        going_on = {where for where in begun if known[where].adding or known[where].removing}
        is_limited = throttle.tell_earlier_limit(own, overview, going_on)
    if begun and options.no_wait:
        print(f"{counted(len(begun), 'partition')} moving; ottla cluster reassign --list shows how far they are")
    elif begun:
        try:
            _wait(own, begun)
            unmoved = _find_unmoved(own, begun)
        except BaseException:
            _explain_what_goes_on(options.throttle, failures)
            raise
        print(f"{counted(len(begun) - len(unmoved), 'partition')} moved", flush=True)
        if unmoved:
            names = join_first([str(where) for where in unmoved])
            failures.append(f"{counted(len(unmoved), 'partition')} not moved: cancelled or changed meanwhile: {names}")
    if is_limited and not options.no_wait:
        failures += throttle.remove_finished_limits(own, overview, has_set_rates=options.throttle is not None)
    return failures


def _begin(
    own: "Client",
    overview: Overview,
    plan: Plan,
    known: Mapping[TopicPartition, PartitionState],
    bytes_per_second: int | None,
) -> tuple[Plan, list[str]]:
    """Begin the moves, limited before they begin. Returns those that have begun, and why others have not."""
    is_requested = False
    try:
        if bytes_per_second is not None:
            throttle.set_limits(own, [each.id for each in overview.alive()], plan, known, bytes_per_second)
        is_requested = True
        refused = request_moves(own, plan)
    except CommandError as error:
        return {}, [str(error)]
    except BaseException:
        if is_requested:  # brokers may have begun what they have not answered
            _explain_what_goes_on(bytes_per_second)
        else:
            for left in throttle.remove_finished_limits(own, overview, has_set_rates=True):
                print(left, file=sys.stderr, flush=True)
        raise
    begun = {where: replicas for where, replicas in plan.items() if where not in refused}
    return begun, [explain_refusals(refused, len(plan))] if refused else []


def request_moves(own: "Client", plan: "Plan | dict[TopicPartition, None]") -> dict[TopicPartition, str]:
    """Begin moves; None as replicas cancels one. Returns why partitions were refused.

    CommandError if the first request is refused as a whole: then nothing has begun.
    """
    entries = sorted(plan.items())
    refused: dict[TopicPartition, str] = {}
    for start in range(0, len(entries), AT_ONCE_MAX):
        answer = own.connect_any().ask(_build_request(entries[start : start + AT_ONCE_MAX]))
        if start == 0:
            raise_for_error(answer, "nothing was moved")
        elif answer.error_code:  # what was requested before goes on
            reason = explain_code(answer.error_code, answer.error_message)
            return refused | {where: reason for where, _ in entries[start:]}
        refused |= {
            TopicPartition(found.name, each.partition_index): explain_code(each.error_code, each.error_message)
            for found in answer.responses
            for each in found.partitions
            if each.error_code
        }
    return refused


def _build_request(
    entries: Sequence[tuple[TopicPartition, tuple[int, ...] | None]],
) -> "AlterPartitionReassignmentsRequest":
    from ottla.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics: dict[str, ReassignableTopic] = {}
    for (topic, number), replicas in entries:
        asked = ReassignablePartition(partition_index=number, replicas=None if replicas is None else list(replicas))
        topics.setdefault(topic, ReassignableTopic(name=topic)).partitions.append(asked)
    return AlterPartitionReassignmentsRequest(topics=list(topics.values()), timeout_ms=30_000)


def explain_refusals(refused: Mapping[TopicPartition, str], asked: int) -> str:
    """What brokers said of the first partitions. Some messages begin with the name of the partition already."""
    texts = [why if why.startswith(str(where)) else f"{where}: {why}" for where, why in refused.items()]
    count = f"{len(refused)} of {counted(asked, 'partition')} refused: " if asked > 1 else ""
    return count + join_first(texts)


def _wait(own: "Client", plan: Plan) -> None:
    """Wait until no partition of the plan moves any more, with a bar or with a line whenever the number changes."""
    shown = -1
    with ProgressLine("moving", len(plan)) as progress:
        while moving := _count_moving(own, plan):
            left = f"{moving} of {counted(len(plan), 'partition')} still moving"
            progress.show(len(plan) - moving, left)
            if moving != shown and not progress.is_shown:
                print(left, file=sys.stderr, flush=True)
                shown = moving
            time.sleep(LOOK_S)


def _count_moving(own: "Client", plan: Iterable[TopicPartition]) -> int:
    wanted = set(plan)
    return sum(each.where in wanted for each in list_reassignments(own))


def _find_unmoved(own: "Client", plan: Plan) -> list[TopicPartition]:
    """The partitions that have other replicas than the plan says, although nothing moves any more."""
    names = sorted({where.topic for where in plan})
    unmoved = list(plan)
    for attempt in range(LOOKS_AT_THE_END):
        if attempt:
            time.sleep(LOOK_S)
        current = {
            TopicPartition(topic.name or "", each.partition_index): tuple(each.replica_nodes)
            for topic in own.fetch_topics(names)
            for each in topic.partitions
        }
        unmoved = [where for where, replicas in plan.items() if current.get(where) != replicas]
        if not unmoved:
            break
    return unmoved


def _explain_what_goes_on(bytes_per_second: int | None, failures: Iterable[str] = ()) -> None:
    """Say what the cluster does after Ctrl-C, or when it cannot be reached any more: it goes on with the moves.

    It may have begun those of a request that it has not answered. `failures` are what would be said at the end.
    """
    lines = [
        *failures,
        "Moves that have begun go on.",
        "  ottla cluster reassign --list        shows how far they are",
        "  ottla cluster reassign --cancel      ends them",
    ]
    if bytes_per_second is not None:
        lines[-3] = f"Moves that have begun go on, limited to {counted(bytes_per_second, 'byte')} a second."
        lines[-1] += " and removes the limit"
        lines.append("  ottla cluster reassign --unthrottle  removes the limit")
        lines.append("The same command again waits for them, and removes the limit at the end.")
    print("\n".join(lines), file=sys.stderr, flush=True)
