"""`ottla mirror up`: mirrors topics and groups between clusters until it is stopped, as MirrorMaker 2 does."""

import argparse
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.connect.foreground import read_properties_file, running_workers
from ottla.cli.pairs import parse_pairs

if TYPE_CHECKING:
    from ottla.connect.connectors.mirror.flows import Flow

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser(
        "up",
        help="mirror topics and groups between clusters",
        description="Mirror topics and groups between clusters: those of a configuration file of MirrorMaker 2, or from"
        " one cluster to another.",
    )
    up.add_argument("config", nargs="?", metavar="FILE", help="a configuration file of MirrorMaker 2")
    up.add_argument("--from", dest="source", metavar="ALIAS=HOST:PORT", help="the source, with a short name for it")
    up.add_argument("--to", dest="target", metavar="ALIAS=HOST:PORT", help="the target, with a short name for it")
    up.add_argument("--topics", metavar="PATTERNS", help="names and patterns of topics, separated by commas")
    up.add_argument(
        "--clusters",
        metavar="ALIAS",
        nargs="+",
        help="only what flows into these clusters, as with connect-mirror-maker.sh: for a process near them",
    )
    up.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting more, as in the file",
    )
    up.add_argument("--log-level", default="warning", help="debug, info, warning or error (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    from ottla.connect.connectors.mirror.flows import list_unknown, read_flows
    from ottla.connect.running.contexts import MASTER, create_context
    from ottla.connect.serving import WorkerProcess

    with running_workers(options.log_level) as (redactor, stopping), ExitStack() as stack:
        given = read_settings(options)
        flows = choose_flows(read_flows(given), options.clusters)
        if unknown := list_unknown(given):
            log.warning("these settings have no effect: %s", ", ".join(unknown))
        of_spark = {name: text for name, text in given.items() if name.startswith("spark.") and name != "spark.master"}
        spark = create_context("ottla-mirror", given.get("spark.master", MASTER), of_spark)
        stack.callback(spark.stop)
        for flow in flows:
            worker = WorkerProcess(flow.worker, is_distributed=True, redactor=redactor, spark=spark)
            stack.callback(worker.close)
            worker.start()
            worker.configure(flow.connectors)
        names = ", ".join(f"{flow.source}->{flow.target}" for flow in flows)
        print(f"ottla: mirrors {names}", flush=True)
        stopping.wait()
    return 0


def choose_flows(flows: "Sequence[Flow]", targets: Sequence[str] | None) -> "list[Flow]":
    """The flows into some of the clusters; all of them if none are named."""
    found = [flow for flow in flows if not targets or flow.target in targets]
    if not found:
        raise CommandError(f"nothing flows into {', '.join(targets or ())}", USAGE_ERROR)
    return found


def read_settings(options: argparse.Namespace) -> dict[str, str]:
    """The file, then the options, then --set."""
    found = read_properties_file(options.config)
    if (options.source is None) != (options.target is None):
        raise CommandError("--from and --to go together", USAGE_ERROR)
    if options.source is not None:
        source, target = _read_cluster(options.source, "--from"), _read_cluster(options.target, "--to")
        found["clusters"] = f"{source[0]}, {target[0]}"
        for alias, bootstrap in (source, target):
            found[f"{alias}.bootstrap.servers"] = bootstrap
        found[f"{source[0]}->{target[0]}.enabled"] = "true"
        found[f"{target[0]}->{source[0]}.emit.heartbeats.enabled"] = "false"
        if options.topics is not None:
            found[f"{source[0]}->{target[0]}.topics"] = options.topics
    elif options.config is None:
        raise CommandError("give a configuration file of MirrorMaker 2, or --from and --to", USAGE_ERROR)
    return {**found, **parse_pairs(options.settings, "--set")}


def _read_cluster(text: str, option: str) -> tuple[str, str]:
    alias, equals, bootstrap = text.partition("=")
    if not equals or not alias or not bootstrap:
        raise CommandError(f"{option} {text!r} is not ALIAS=HOST:PORT", USAGE_ERROR)
    return alias, bootstrap
