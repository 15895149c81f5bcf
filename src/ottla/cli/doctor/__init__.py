"""`ottla doctor`: looks for the usual mistakes of a set-up and says in one line how to mend each.

It looks at this machine (Python, packages, limits, the data directory), at the way to the brokers (names, ports, TLS,
logins, advertised addresses) and at the cluster (replicas, internal topics, times). It changes nothing. The exit status
is 0 if nothing is wrong and 1 otherwise.

    finding.py       what a check has found          machine.py      checks of this machine
    data.py          checks of the data directory    connecting.py   checks of the way to the brokers
    health.py        checks of the cluster           bundle.py       the archive for a bug report
    redacting.py     takes secrets out of texts
"""

import argparse
import os
from collections.abc import Callable, Iterator

from ottla.cli.client_settings import BOOTSTRAP, add_client_arguments, read_client_settings
from ottla.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from ottla.cli.numbers import int_between
from ottla.cli.output import JSON, add_format_argument, counted, show_json
from ottla.cli.progress import ProgressLine

PORT_MAX = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("--data", metavar="DIR", help="the broker's data directory (default: that of `ottla up`)")
    parser.add_argument("--port", type=int_between(1, PORT_MAX), help="a port on which a broker shall listen")
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="ZooKeeper servers, separated by commas")
    parser.add_argument("--offline", action="store_true", help="look only at this machine")
    add_format_argument(parser)
    parser.add_argument("--json", action="store_const", const=JSON, dest="format", help="the same as --format json")
    parser.add_argument("--bundle", metavar="FILE", help="also write an archive for a bug report, without any secret")
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        dest="logs",
        metavar="FILE",
        help="a log whose last lines go into the bundle; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    settings = read_client_settings(options).settings
    findings = []
    with ProgressLine("doctor") as progress:
        for finding in examine(options, settings, progress.say):
            progress.clear()
            findings.append(finding)
            if options.format != JSON:
                _show(finding)
    problems = sum(finding.level == PROBLEM for finding in findings)
    if options.format == JSON:
        show_json({"problems": problems, "checks": [finding._asdict() for finding in findings]})
    else:
        print(f"{counted(problems, 'problem')} found" if problems else "nothing is wrong")
    if options.bundle is not None:
        from ottla.cli.doctor.bundle import write_bundle

        write_bundle(options, settings, findings)
        if options.format != JSON:
            print(f"bundle written to {options.bundle}")
    return 1 if problems else 0


def examine(
    options: argparse.Namespace, settings: dict[str, str], say: Callable[[str], None] = lambda note: None
) -> Iterator[Finding]:
    """All checks, one after the other. `say` is told what is looked at next."""
    from ottla.cli.directories import find_data_directory
    from ottla.cli.doctor.data import check_data
    from ottla.cli.doctor.machine import check_machine

    say("looking at this machine ...")
    yield from check_machine()
    say("looking at the data directory ...")
    yield from check_data(options.data or find_data_directory(os.environ), is_named=options.data is not None)
    if options.port is not None:
        from ottla.cli.doctor.connecting import check_port

        yield from check_port(options.port)
    if options.offline:
        return
    from ottla.cli.doctor.connecting import check_connections, check_settings, check_zookeeper

    if options.zookeeper is not None:
        say(f"asking ZooKeeper at {options.zookeeper} ...")
        yield from check_zookeeper(options.zookeeper)
    is_reached = True
    say(f"connecting to {settings[BOOTSTRAP]} ...")
    for finding in (*check_settings(settings), *check_connections(settings)):
        is_reached = is_reached and not (finding.level == PROBLEM and finding.subject in ("connection", "settings"))
        yield finding
    if is_reached:
        from ottla.cli.doctor.health import check_cluster

        say(f"looking at the cluster at {settings[BOOTSTRAP]} ...")
        yield from check_cluster(settings)
    else:
        yield Finding(NOTE, "cluster", f"no broker answers at {settings[BOOTSTRAP]}, so the cluster was not looked at")


def _show(finding: Finding) -> None:
    words = {OK: "ok", NOTE: "note", PROBLEM: "PROBLEM"}
    print(f"{words[finding.level]:<8} {finding.subject}: {finding.message}")
    if finding.fix:
        print(f"{'':<8} -> {finding.fix}")
