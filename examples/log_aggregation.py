"""Log aggregation: collects the log lines of many services in a table of Parquet files, by service and level.

    python examples/log_aggregation.py [--bootstrap HOST:PORT]

Services send their log lines to a topic. From time to time a query reads the new lines and adds them to the table. Its
checkpoint has the offsets that it has read, so no line is missing or there twice. Lines that do not have the expected
format are kept too, with the level UNREADABLE.
"""

from collections import Counter
from random import Random
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from stage import create_topics, run, send, stream

LINES = "logs.lines"
SERVICES = ("cart", "login", "search")
LEVELS = ("INFO", "INFO", "INFO", "WARNING", "ERROR")
FORMAT = r"^(\S+Z) (INFO|WARNING|ERROR) (.*)$"
NIGHTS = 2
LINES_A_NIGHT = 500


def main(spark: SparkSession, bootstrap: str) -> None:
    create_topics(bootstrap, LINES)
    random = Random(3)
    expected: Counter[tuple[str, str]] = Counter()
    with TemporaryDirectory() as directory:
        for night in range(NIGHTS):
            lines = [make_line(random, night, number) for number in range(LINES_A_NIGHT)]
            send(bootstrap, LINES, ((service, line) for service, _, line in lines))
            expected.update((service, level) for service, level, _ in lines)
            add_new_lines(stream(spark, bootstrap, LINES), directory)
        archive = spark.read.parquet(f"{directory}/table")
        counts = archive.groupBy("service", "level").count().collect()
        found = {(row.service, row.level): row["count"] for row in counts}
        worst = archive.where("level = 'ERROR'").groupBy("service").count().orderBy(f.desc("count")).first()
        files = len(archive.inputFiles())

    assert found == expected, "the table differs from the lines that were sent"
    assert worst is not None
    print(f"{expected.total()} lines of {len(SERVICES)} services are in {files} Parquet files.")
    print(f"Most errors: {worst.service}, {worst['count']} of them. Unreadable: {count_lines('UNREADABLE', found)}.")


def add_new_lines(lines: DataFrame, directory: str) -> None:
    """Adds the lines that have arrived since the last call to the table."""
    text = f.col("value").cast("string")
    readable = text.rlike(FORMAT)
    parsed = lines.select(
        f.col("key").cast("string").alias("service"),
        f.when(readable, f.regexp_extract(text, FORMAT, 2)).otherwise("UNREADABLE").alias("level"),
        f.when(readable, f.to_timestamp(f.regexp_extract(text, FORMAT, 1))).otherwise(f.col("timestamp")).alias("at"),
        f.when(readable, f.regexp_extract(text, FORMAT, 3)).otherwise(text).alias("message"),
    )
    query = (
        parsed.writeStream.format("parquet")
        .option("path", f"{directory}/table")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .partitionBy("service", "level")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def make_line(random: Random, night: int, number: int) -> tuple[str, str, str]:
    """The service, the level, and the line as the service writes it."""
    service = random.choice(SERVICES)
    if random.random() < 0.02:
        return service, "UNREADABLE", "Segmentation fault"
    level = random.choice(LEVELS)
    return service, level, f"2026-01-0{5 + night}T23:{number // 60:02}:{number % 60:02}Z {level} request {number}"


def count_lines(level: str, counts: dict[tuple[str, str], int]) -> int:
    return sum(count for (_, each), count in counts.items() if each == level)


if __name__ == "__main__":
    run(main, __doc__)
