"""The JMS source in a process that a test kills.

python -m tests.connect.crashing_jms <bootstrap> <directory>
"""

import sys
import threading
from pathlib import Path

from ottla.connect.connectors.jms.jms_source import ActiveMQSource
from ottla.connect.running.contexts import create_context
from tests.connect.runs import RunningConnector
from tests.spark.settings import SETTINGS


def run_connector(bootstrap: str, directory: Path) -> None:
    spark = create_context("crashing", "local[2]", {**SETTINGS})
    config = {
        "activemq.url": (directory / "url").read_text(),
        "activemq.username": "ottla",
        "activemq.password": "hush-hush",
        "jms.destination.name": "crashing",
        "kafka.topic": "crashing",
        "batch.size": "20",
        "max.pending.messages": "50",
        "tasks.max": "2",
    }
    RunningConnector(spark, bootstrap, ActiveMQSource, "crashing-jms", config).run.start()
    threading.Event().wait()


if __name__ == "__main__":
    run_connector(sys.argv[1], Path(sys.argv[2]))
