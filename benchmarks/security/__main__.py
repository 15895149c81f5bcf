"""What security costs, beside Apache Kafka: the same settings, clients and loads, taking turns.

`python -m benchmarks.security` takes about ten minutes, `--quick` about three. Both brokers have the same listeners and
the same certificate. What ACLs cost shows in small requests to a broker with an authorizer, whose user is allowed
everything by one ACL among a thousand, beside a broker of the same kind without.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from statistics import median

from benchmarks.comparison import Contest, Results, Turns, add_options, describe_run, is_chosen, print_progress, publish
from benchmarks.peers.apache_kafka import VERSION, Unavailable, find_jars
from benchmarks.report import OtherPrograms, Row, format_number
from benchmarks.security.brokers import AnyBroker, SecuredKafka, SecuredOttla
from benchmarks.security.loads import (
    FULL,
    QUICK,
    Caller,
    Failure,
    Size,
    Values,
    add_acls,
    measure_floods,
    measure_logins,
    measure_noise,
    measure_tls,
    measure_tls_logins,
    prepare_topic,
    send_requests_together,
)

BEGIN, END = "<!-- measured with security -->", "<!-- end of what was measured with security -->"
NAMES = ("Ottla", f"Apache Kafka {VERSION}")
ROUNDS = 10
REQUESTS_A_ROUND = 20_000  # the kernel counts CPU in hundredths of a second
ACLS = 1000


@dataclass(frozen=True)
class Workload:
    name: str
    run: Callable[[AnyBroker, Size], Values]


WORKLOADS = (
    Workload("tls", measure_tls),
    Workload("logins", measure_logins),
    Workload("tls-logins", measure_tls_logins),
    Workload("noise", measure_noise),
    Workload("flood", measure_floods),
)
AUTHORIZER = "authorizer"


def make_broker(side: int, *, authorizer: bool = False) -> AnyBroker:
    return SecuredKafka(authorizer=authorizer) if side else SecuredOttla(authorizer=authorizer)


def measure(size: Size, workloads: Sequence[Workload], turns: Turns) -> Results:
    results = Results()
    with ExitStack() as stack:
        brokers = [make_broker(side) for side in (0, 1)]
        for broker in brokers:
            stack.enter_context(broker)
        for broker in brokers:  # a JVM compiles what it has run for a while
            print_progress(f"warming up {broker.name}")
            measure_tls(broker, size)
            measure_logins(broker, size)
        for workload in workloads:
            try:
                for side in turns.take(workload.name, NAMES):
                    add_values(results, workload.run(brokers[side], size), side)
            except Failure as reason:  # the other rows are worth having without this one
                results.failures.append(f"{workload.name}: {reason}")
    return results


def add_values(results: Results, values: Values, side: int) -> None:
    for row, value in values.items():
        results.add(row, value, side)
        print_progress(f"  {row.name}: {format_number(value)} {row.unit}")


def measure_authorizer(size: Size, side: int) -> Values:
    """Small requests to a broker with an authorizer and to one without, in short turns.

    Several are in flight: with one at a time most of the CPU is the kernel's, which puts the broker to sleep and wakes
    it up, and varies from turn to turn by more than an authorizer costs. Two processes of the same program still differ
    by several per cent; `benchmarks.dispatch` measures the difference itself, without sockets.
    """
    with make_broker(side) as without, make_broker(side, authorizer=True) as with_it:
        calls = []
        for broker in (without, with_it):
            assert isinstance(broker, SecuredOttla | SecuredKafka)
            calls.append((broker, Caller(broker.secured.plain_port), prepare_topic(broker, "acl")))
            if broker is with_it:
                add_acls(broker, ACLS)
        taken: list[list[float]] = [[], []]
        requests = int(REQUESTS_A_ROUND * size.seconds / FULL.seconds)
        for _ in range(ROUNDS):
            for number, (broker, caller, topic) in enumerate(calls):
                used = broker.usage().cpu_seconds
                send_requests_together(caller, topic, requests)
                taken[number].append((broker.usage().cpu_seconds - used) / requests * 1e6)
        for _, caller, _ in calls:
            caller.close()
    plain, authorized = (median(each) for each in taken)
    return {
        Row("small request without an authorizer: CPU", "us", more_is_better=False): plain,
        Row("small request with an authorizer: CPU", "us", more_is_better=False): authorized,
    }


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.security", description=(__doc__ or "").splitlines()[0])
    add_options(parser, [*(workload.name for workload in WORKLOADS), AUTHORIZER], "about three minutes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    size = QUICK if options.quick else FULL
    size = replace(size, pairs=options.pairs or size.pairs)
    workloads = [workload for workload in WORKLOADS if is_chosen(workload.name, options.rows)]
    began, others = time.monotonic(), OtherPrograms()
    try:
        find_jars()
    except Unavailable as reason:
        print(f"Apache Kafka cannot run here: {reason}", file=sys.stderr)
        return 1
    turns = Turns(size.pairs, 2)
    results = measure(size, workloads, turns) if workloads else Results()
    if is_chosen(AUTHORIZER, options.rows):
        try:
            for side in turns.take(AUTHORIZER, NAMES):
                add_values(results, measure_authorizer(size, side), side)
        except Failure as reason:
            results.failures.append(f"{AUTHORIZER}: {reason}")
    conditions = f"One broker, librdkafka and raw sockets. {describe_run(size.pairs, began, others)}"
    return publish(results, options, Contest(*NAMES, ()), conditions, {"size": asdict(size)}, (BEGIN, END))


if __name__ == "__main__":
    raise SystemExit(main())
