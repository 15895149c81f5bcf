"""A worker as a process of its own, for tests that kill and pause it: `python -m tests.connect.worker_process FILE`.

Prints the port of its REST server once it has joined its group.
"""

import signal
import sys
import threading
from pathlib import Path

from ottla.config.properties import read_properties
from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.rest.listeners import read_rest_options
from ottla.connect.rest.server import RestServer
from ottla.connect.running.run import Run, RunEnvironment
from ottla.connect.running.sessions import create_session
from ottla.connect.settings.providers import Providers
from ottla.connect.worker.starting import make_distributed_herder


def main(path: str) -> None:
    properties = read_properties(Path(path).read_text(encoding="utf-8"))
    plugins = InstalledPlugins(properties)
    server = RestServer(read_rest_options(properties))
    spark = create_session("worker", "local[4]", {"spark.ui.enabled": "false"})
    environment = RunEnvironment(
        lambda: spark, plugins.find_class, lambda _: None, Providers(properties), plugins.redactor
    )
    herder = make_distributed_herder(
        properties,
        f"127.0.0.1:{server.ports[0]}",
        plugins,
        lambda spec, listener: Run(environment, spec, listener),
    )
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    herder.start()
    server.start(herder, plugins)
    print(server.ports[0], flush=True)
    is_over.wait()
    server.stop()
    herder.close()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
