"""`ottla generate systemd|compose|prometheus|alerts|grafana`: files with which a broker is run and watched.

systemd.py      a unit, and the settings of a broker
compose.py      brokers and ZooKeeper in containers
prometheus.py   the configuration of Prometheus
alerts.py       its alert rules
board.py        a board of Grafana
yaml_text.py    plain data as YAML

The folder `deploy` of the repository has what these print; `tools/write_deploy.py` writes it.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT32_MAX, PORT_MAX, int_between

Files = Mapping[str, str]
"""File name -> content. The first is the one that is printed."""

RULES_FILE = "ottla-alerts.yml"
METRICS_PORT = 9308

_PATH = (re.compile(r"/[A-Za-z0-9_./@+-]*"), "an absolute path of letters, digits and _./@+-")
_TEXT = (re.compile(r"[ -~]{1,1000}"), "a name of printable ASCII characters")
_TEXTS = {
    "program": _PATH,
    "config": _PATH,
    "user": (re.compile(r"[a-z_][a-z0-9_-]{0,31}"), "the name of a user"),
    "image": (re.compile(r"[a-z0-9][a-zA-Z0-9_./:@-]{0,255}"), "the name of an image"),
    "source": _TEXT,
    "rules": _TEXT,
    "job": (re.compile(r"[A-Za-z0-9_.-]{1,100}"), "a name of letters, digits and _.-"),
    "title": _TEXT,
}
"""Option -> the text that it may have, which stands in a file as it is."""

_DURATION = re.compile(r"[1-9][0-9]{0,6}(ms|s|m|h)")
_PERCENT = int_between(1, 99)
_NUMBER = int_between(1, INT32_MAX)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")

    _add_systemd(action("systemd", "a unit that runs a broker as a service; -o DIR/ also writes server.properties"))
    _add_compose(action("compose", "a compose file: brokers and three ZooKeeper servers in containers"))
    _add_prometheus(action("prometheus", "the configuration of a Prometheus that watches brokers"))
    _add_alerts(action("alerts", "alert rules for Prometheus"))
    grafana = action("grafana", "a board for Grafana, as JSON")
    grafana.add_argument("--title", default="Ottla", help="the name of the board (%(default)s)")
    for each in actions.choices.values():
        each.add_argument("--output", "-o", metavar="WHERE", help="write this file, or into this directory (DIR/)")
        each.add_argument("--force", action="store_true", help="replace files that exist")


def _add_systemd(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--program", default="/opt/ottla/bin/ottla", help="the command (%(default)s)")
    parser.add_argument(
        "--config", default="/etc/ottla/server.properties", help="the settings of the broker (%(default)s)"
    )
    parser.add_argument("--user", default="ottla", help="who runs it (%(default)s)")


def _add_compose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--brokers", type=int_between(1, 5), default=3, metavar="N", help="from 1 to 5 (3)")
    parser.add_argument("--image", default="ottla", help="(%(default)s)")
    parser.add_argument(
        "--source",
        metavar="CLONE",
        help="build the image from this clone of the repository",
    )


def _add_prometheus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        type=_parse_target,
        action="append",
        metavar="HOST:PORT",
        help=f"the metrics port of a broker; may be repeated (localhost:{METRICS_PORT})",
    )
    parser.add_argument("--interval", type=_parse_duration, default="15s", help="between scrapes (15s)")
    parser.add_argument(
        "--rules",
        default=RULES_FILE,
        metavar="NAME",
        help="the alert rules (%(default)s)",
    )
    _add_job(parser)


def _add_alerts(parser: argparse.ArgumentParser) -> None:
    _add_job(parser)
    for name, default, kind, meaning in (
        ("--disk-free-percent", 10, _PERCENT, "a disk with less free space is low"),
        ("--produce-p95-ms", 500, _NUMBER, "95 %% of produce requests are answered within this time"),
        ("--produce-p99-ms", 2000, _NUMBER, "the same for 99 %%"),
        ("--fetch-p95-ms", 100, _NUMBER, "95 %% of fetches are worked on for less, without the wait for records"),
        ("--fetch-p99-ms", 500, _NUMBER, "the same for 99 %%"),
        ("--error-percent", 5, _PERCENT, "share of error codes among answers"),
        ("--lag-seconds", 300, _NUMBER, "lag of a group that still grows"),
    ):
        parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{meaning} ({default})")


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", default="ottla", help="the name of the scrape job (%(default)s)")


def run(options: argparse.Namespace) -> int:
    for name, (pattern, meaning) in _TEXTS.items():
        text = getattr(options, name, None)
        if text is not None and not pattern.fullmatch(text):
            raise CommandError(f"--{name}: {text!r} is not {meaning}", USAGE_ERROR)
    files = _BUILDERS[options.action](options)
    if options.output is None:
        sys.stdout.write(next(iter(files.values())))
        return 0
    if options.output.endswith(os.sep) or os.path.isdir(options.output):
        wanted = {os.path.join(options.output, name): text for name, text in files.items()}
    else:
        wanted = {options.output: next(iter(files.values()))}
    for path in wanted:
        if os.path.exists(path) and not options.force:
            raise CommandError(f"{path} exists already; --force replaces it", USAGE_ERROR)
    for path, text in wanted.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        print(f"wrote {path}")
    return 0


def build_files(arguments: Sequence[str]) -> Files:
    """The files that these arguments of the command make."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return _BUILDERS[options.action](options)


# What each action makes


def _build_systemd(options: argparse.Namespace) -> Files:
    from ottla.cli.generate.systemd import write_properties, write_unit

    return {
        "ottla.service": write_unit(options.program, options.config, options.user),
        "server.properties": write_properties(),
    }


def _build_compose(options: argparse.Namespace) -> Files:
    from ottla.cli.generate.compose import write_compose

    return {"compose.yaml": write_compose(options.brokers, options.image, options.source)}


def _build_prometheus(options: argparse.Namespace) -> Files:
    from ottla.cli.generate.prometheus import write_prometheus

    targets = options.target or [f"localhost:{METRICS_PORT}"]
    return {"prometheus.yml": write_prometheus(options.job, targets, options.interval, options.rules)}


def _build_alerts(options: argparse.Namespace) -> Files:
    from ottla.cli.generate.alerts import Thresholds, write_alerts

    thresholds = Thresholds(
        job=options.job,
        disk_free_percent=options.disk_free_percent,
        produce_p95_ms=options.produce_p95_ms,
        produce_p99_ms=options.produce_p99_ms,
        fetch_p95_ms=options.fetch_p95_ms,
        fetch_p99_ms=options.fetch_p99_ms,
        error_percent=options.error_percent,
        lag_seconds=options.lag_seconds,
    )
    return {RULES_FILE: write_alerts(thresholds)}


def _build_grafana(options: argparse.Namespace) -> Files:
    from ottla.cli.generate.board import write_board

    return {"ottla-board.json": write_board(options.title)}


_BUILDERS: Mapping[str, Callable[[argparse.Namespace], Files]] = {
    "systemd": _build_systemd,
    "compose": _build_compose,
    "prometheus": _build_prometheus,
    "alerts": _build_alerts,
    "grafana": _build_grafana,
}


# Arguments


def _parse_duration(text: str) -> str:
    if not _DURATION.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 15s")
    return text


def _parse_target(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", host) or not port.isascii() or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    if not 0 < int(port) <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"the port of {text!r} is not between 1 and {PORT_MAX}")
    return text
