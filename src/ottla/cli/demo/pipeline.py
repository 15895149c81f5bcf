"""The demo's pipeline on Spark, a process of its own: orders become sales, sales and page views become revenue.

    orders, customers  ->  sales            parsed, joined with the newest record of each customer; append
    orders             ->  orders-rejected  invalid orders with the reason; the plain sink
    sales, page-views  ->  revenue          by minute and category, with a watermark; update

All three write exactly once. Each message on standard output is a line of JSON. A line `finish` on standard input asks
the pipeline to process everything that is in its topics, and the end of standard input ends it.

    python -m ottla.cli.demo.pipeline <bootstrap> <directory> <orders in a batch>
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

import ottla.spark
from ottla.cli.demo.books import GUEST
from ottla.cli.demo.shop import INCOMPLETE, NO_AMOUNT, NOT_JSON
from ottla.cli.demo.topics import (
    CUSTOMERS,
    ORDERS,
    PAGE_VIEWS,
    REJECTED,
    REVENUE,
    REVENUE_GROUP,
    SALES,
    SALES_GROUP,
)

ORDER = "order LONG, customer STRING, category STRING, cents LONG, at TIMESTAMP, broken STRING"
SALE = "order LONG, category STRING, cents LONG, at TIMESTAMP"
PAGE_VIEW = "category STRING, at TIMESTAMP"
CUSTOMER = "country STRING"

WATERMARK = "15 minutes"
"""How late a record may be. It must be more than a batch of sales spans, because the end of a transaction can become
visible in one partition earlier than in another."""
TRIGGER = {"processingTime": "1 second"}
ATTEMPTS = 5
WORKER_TOO_SLOW = "Python worker failed to connect back"
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


class Pipeline:
    """The three queries; they run from `start` on."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: str, batch_orders: int) -> None:
        self._spark = spark
        self._kafka = {"kafka.bootstrap.servers": bootstrap}
        self._directory = directory
        self._batch_orders = batch_orders

    def start(self) -> list[StreamingQuery]:
        """Start the queries in the order in which they depend on each other. One by one, since each starts processes,
        which take their time."""
        starts = {SALES: self._sell, REJECTED: self._reject, REVENUE: self._add_up}
        queries = []
        for number, (name, start) in enumerate(starts.items(), 1):
            send_message({"step": f"waiting for the first batch of query {name}, {number} of {len(starts)}"})
            queries.append(_start(start))
        return queries

    def _sell(self) -> StreamingQuery:
        orders = self._orders().where("reason IS NULL").select("order.*")
        sales = orders.join(f.broadcast(self._customers()), "customer", "left").select(
            f.col("customer").alias("key"),
            json_of("order", "category", "cents", f.coalesce("country", f.lit(GUEST)).alias("country"), "at"),
        )
        return ottla.spark.write_stream(
            sales,
            SALES,
            name=SALES,
            checkpoint=self._checkpoint(SALES),
            options=self._kafka,
            trigger=TRIGGER,
            group=SALES_GROUP,
        )

    def _reject(self) -> StreamingQuery:
        rejected = self._orders().where("reason IS NOT NULL").select("key", json_of("reason", "record"))
        writer = rejected.writeStream.format("ottla").options(**self._kafka).option("topic", REJECTED)
        return (
            writer.option("checkpointLocation", self._checkpoint(REJECTED))
            .queryName(REJECTED)
            .trigger(processingTime=TRIGGER["processingTime"])
            .start()
        )

    def _add_up(self) -> StreamingQuery:
        """Each of the two streams has its own watermark, and the slower one is waited for."""
        sales = (
            self._stream(SALES)
            .select(f.from_json(text("value"), SALE).alias("sale"))
            .selectExpr("sale.category", "sale.at", "1 AS orders", "sale.cents", "0 AS views")
        )
        views = (
            self._stream(PAGE_VIEWS)
            .select(f.from_json(text("value"), PAGE_VIEW).alias("view"))
            .selectExpr("view.category", "view.at", "0 AS orders", "0L AS cents", "1 AS views")
        )
        both = sales.withWatermark("at", WATERMARK).union(views.withWatermark("at", WATERMARK))
        minute = f.window("at", "1 minute")  # as a whole: window.start alone has no watermark
        tallies = both.groupBy(minute, "category").agg(
            *(f.sum(column).alias(column) for column in ("orders", "cents", "views"))
        )
        revenue = tallies.select(
            f.concat_ws(" ", f.date_format("window.start", "HH:mm"), "category").alias("key"),
            json_of(f.unix_millis("window.start").alias("minute_ms"), "category", "orders", "cents", "views"),
        )
        return ottla.spark.write_stream(
            revenue,
            REVENUE,
            name=REVENUE,
            checkpoint=self._checkpoint(REVENUE),
            options=self._kafka,
            trigger=TRIGGER,
            mode="update",
            group=REVENUE_GROUP,
        )

    def _orders(self) -> DataFrame:
        """Each record with its parsed order and, if it is not a valid order, the reason."""
        raw = self._stream(ORDERS, maxOffsetsPerTrigger=str(self._batch_orders))
        parsed = f.from_json(text("value"), ORDER, {"columnNameOfCorruptRecord": "broken"})
        missing = " OR ".join(f"order.{field} IS NULL" for field in ("order", "customer", "category", "cents", "at"))
        reason = (
            f.when(f.expr("order.broken IS NOT NULL"), NOT_JSON)
            .when(f.expr(missing), INCOMPLETE)
            .when(f.expr("order.cents <= 0"), NO_AMOUNT)
        )
        return raw.select("key", text("value").alias("record"), parsed.alias("order")).withColumn("reason", reason)

    def _customers(self) -> DataFrame:
        """A table from a compacted topic: the newest record of each key that is not deleted. Each batch reads it
        again."""
        changes = self._spark.read.format("ottla").options(**self._kafka).option("subscribe", CUSTOMERS).load()
        newest = changes.groupBy("key").agg(f.max_by("value", "offset").alias("value")).where("value IS NOT NULL")
        country = f.from_json(text("value"), CUSTOMER).country
        return newest.select(text("key").alias("customer"), country.alias("country"))

    def _stream(self, topic: str, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("ottla").options(**self._kafka, **options)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.option("kafka.isolation.level", "read_committed").load()

    def _checkpoint(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _start(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Starts a query, waits for its first, empty batch, and tries again if that fails because of a slow machine.

    Spark expects a Python process to start within ten seconds, which is short on a busy machine. A query that is
    started again continues from its checkpoint, so nothing is processed twice.
    """
    for attempt in range(1, ATTEMPTS + 1):
        query = start()
        try:
            query.processAllAvailable()
            break
        except StreamingQueryException as error:
            if WORKER_TOO_SLOW not in str(error) or attempt == ATTEMPTS:
                raise
    return query


def text(column: str) -> Any:
    return f.col(column).cast("string")


def json_of(*columns: Any) -> Any:
    return f.to_json(f.struct(*columns)).alias("value")


class Reports(StreamingQueryListener):
    """Sends a message for every batch, and for a query that failed."""

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        send_message({"query": progress.name, "ms": progress.batchDuration, "watermark": watermark_of(progress)})

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.exception:
            send_message({"failure": event.exception})


def watermark_of(progress: StreamingQueryProgress | None) -> str | None:
    return progress.eventTime.get("watermark") if progress is not None and progress.eventTime else None


def send_message(message: Mapping[str, object]) -> None:
    """Writes a message to standard output in one call, because the listener of the queries does so on another
    thread."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main(bootstrap: str, directory: str, batch_orders: str) -> None:
    send_message({"step": "waiting for its JVM"})
    spark = ottla.spark.session("ottla-demo", config=SETTINGS)
    queries = Pipeline(spark, bootstrap, directory, int(batch_orders)).start()
    spark.streams.addListener(Reports())
    send_message({"ready": True, "spark": spark.version})
    for command in sys.stdin:
        if command.strip() == "finish":
            for query in queries:
                query.processAllAvailable()
            send_message({"finished": True, "watermark": watermark_of(queries[-1].lastProgress)})
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
