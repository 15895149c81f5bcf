"""`ottla connect up`: runs a worker until it is stopped (Ctrl-C or SIGTERM)."""

import argparse

from ottla.cli.connect.asking import read_file
from ottla.cli.connect.foreground import read_properties_file, running_workers
from ottla.cli.connect.progress import show_progress
from ottla.cli.pairs import parse_pairs
from ottla.client.defaults import BOOTSTRAP, find_default_connection

GROUP = "group.id"
_DEFAULTS = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


def run_up(options: argparse.Namespace) -> int:
    from ottla.connect.serving import WorkerProcess
    from ottla.connect.worker.standalone import read_connector_file

    with running_workers(options.log_level) as (redactor, stopping):
        properties = read_worker_properties(options)
        connectors = [read_connector_file(read_file(path), path) for path in options.connectors]
        worker = WorkerProcess(properties, is_distributed=GROUP in properties, redactor=redactor)
        try:
            worker.start(connectors)
            mode = f"in the group {properties[GROUP]}" if GROUP in properties else "alone"
            print(f"ottla: Connect runs {mode}; its REST API is {worker.url}", flush=True)
            show_progress(worker, stopping)
        finally:
            worker.close()
    return 0


def read_worker_properties(options: argparse.Namespace) -> dict[str, str]:
    """The file, then the options, then --set. If none of them names a cluster, it is that of OTTLA_BOOTSTRAP or of the
    profile, with its login."""
    found = {**_DEFAULTS, **read_properties_file(options.config)}
    if options.bootstrap is not None:
        found[BOOTSTRAP] = options.bootstrap
    if options.port is not None:
        found["listeners"] = f"http://127.0.0.1:{options.port}"
    if options.master is not None:
        found["spark.master"] = options.master
    found |= parse_pairs(options.settings, "--set")
    return found if found.get(BOOTSTRAP) else find_default_connection() | found
