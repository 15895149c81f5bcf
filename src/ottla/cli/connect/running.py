"""`ottla connect up`: runs a worker until it is stopped (Ctrl-C or SIGTERM)."""

import argparse
import logging
import os
import signal
import sys
from threading import Event

from ottla.cli.client import BOOTSTRAP_VARIABLE, parse_pairs
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.connect.asking import read_file
from ottla.cli.connect.progress import show_progress
from ottla.observability import logs

GROUP = "group.id"
_DEFAULTS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}

_TALKATIVE = ("uvicorn", "py4j")
"""Libraries that log each of their steps."""


def run_up(options: argparse.Namespace) -> int:
    from ottla.connect.errors import ConnectError
    from ottla.connect.serving import WorkerProcess
    from ottla.connect.settings.redaction import RedactingFormatter, Redactor
    from ottla.connect.worker.herder import HerderError
    from ottla.connect.worker.standalone import read_connector_file

    redactor = Redactor()
    logs.configure(sys.stderr, options.log_level, RedactingFormatter(logs.LineFormatter(), redactor))
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        properties = read_worker_properties(options)
        connectors = [read_connector_file(read_file(path), path) for path in options.connectors]
        worker = WorkerProcess(properties, is_distributed=GROUP in properties, redactor=redactor)
        try:
            worker.start(connectors)
            mode = f"in the group {properties[GROUP]}" if GROUP in properties else "alone"
            print(f"ottla: Connect runs {mode}; its REST API is http://127.0.0.1:{worker.port}", flush=True)
            show_progress(worker, stopping)
        finally:
            worker.close()
    except (ConnectError, HerderError) as error:
        raise CommandError(redactor.redact(str(error)).replace("\n", "; ")) from None
    return 0


def read_worker_properties(options: argparse.Namespace) -> dict[str, str]:
    """The file, then the options, then --set; the cluster of OTTLA_BOOTSTRAP if none of them names one."""
    from ottla.config.properties import read_properties
    from ottla.config.settings import ConfigError

    found = dict(_DEFAULTS)
    if bootstrap := os.environ.get(BOOTSTRAP_VARIABLE):
        found["bootstrap.servers"] = bootstrap
    if options.config is not None:
        try:
            found.update(read_properties(read_file(options.config)))
        except ConfigError as error:
            raise CommandError(f"{options.config}: {error}", USAGE_ERROR) from None
    if options.bootstrap is not None:
        found["bootstrap.servers"] = options.bootstrap
    if options.port is not None:
        found["listeners"] = f"http://127.0.0.1:{options.port}"
    if options.master is not None:
        found["spark.master"] = options.master
    return {**found, **parse_pairs(options.settings, "--set")}
