"""A batch of Spark, from its own JDBC source to a topic: what somebody would write without Connect.

python -m benchmarks.connect.spark_jdbc <driver's jar> <url> <bootstrap> <topic>

It prints a line when the batch begins, and stays until it is terminated.
"""

import signal
import sys


def main(jar: str, url: str, bootstrap: str, topic: str) -> None:
    from pyspark.sql import functions as F

    import ottla.spark

    spark = ottla.spark.session("spark-jdbc", master="local[2]", config={"spark.jars": jar})
    options: dict[str, str] = {
        "url": url,
        "dbtable": "rows",
        "user": "postgres",
        "driver": "org.postgresql.Driver",
        "partitionColumn": "id",
        "lowerBound": "1",
        "upperBound": "2000000",
        "numPartitions": "8",
        "fetchsize": "10000",
    }
    spark.range(10).collect()
    print("begins", flush=True)
    rows = spark.read.format("jdbc").options(**options).load()
    values = rows.select(F.to_json(F.struct("id", "amount", "note")).alias("value"))
    target = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    values.write.format("ottla").options(**target).mode("append").save()
    signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    main(*sys.argv[1:])
