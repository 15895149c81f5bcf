"""Spark's own Kafka connector, the peer of `format("ottla")`: its jars, for `spark.jars`.

PySpark has everything else that the connector needs, and the connector of Spark 4.2 runs on PySpark 4.3. Maven resolves
the jars into `.cache`, once, like those of Apache Kafka. OTTLA_CONNECTOR_JARS names a directory of jars to use instead.
"""

import os
from pathlib import Path

from benchmarks import PROJECT
from benchmarks.peers.apache_kafka import RESOLVE_SECONDS, Artifact, Unavailable, resolve

VERSION = "4.2.0"
JARS_VARIABLE = "OTTLA_CONNECTOR_JARS"
CACHE = PROJECT / ".cache" / f"spark-kafka-connector-{VERSION}"
ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


def find_connector_jars(patience_seconds: float = RESOLVE_SECONDS) -> str:
    """The value of `spark.jars`. Raises Unavailable, which says what is missing."""
    given = os.environ.get(JARS_VARIABLE)
    directory = Path(given) if given else CACHE / "jars"
    if not given and not directory.is_dir():
        resolve(directory, patience_seconds, ARTIFACTS, alone=True)
    found = sorted(map(str, directory.glob("*.jar")))
    if len(found) < len(ARTIFACTS):
        raise Unavailable(f"{given or directory} does not hold the jars of Spark's Kafka connector")
    return ",".join(found)
