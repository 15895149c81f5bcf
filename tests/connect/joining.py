"""A Streams app that a test kills: it joins the captured orders with their payments, for a sink of Connect.

python -m tests.connect.joining <bootstrap> <directory>

Keys are numbers of four bytes. Values are JSON with a schema, as Connect's JSON converter reads and writes them.
"""

import sys
from typing import TYPE_CHECKING

from ottla.streams.app import App

if TYPE_CHECKING:
    from pyspark.sql import Column

APP, ORDERS, PAYMENTS, JOINED = "paid-orders", "shop.public.orders", "shop.public.payments", "paid"


def make_app(bootstrap: str, directory: str) -> App:
    from pyspark.sql import functions as F

    app = App(APP, bootstrap=bootstrap, master="local[2]", state_dir=directory, interval_ms=100)
    orders = app.table(ORDERS, key="int", key_column="id", value="payload struct<item: string, amount: int>")
    payments = app.table(PAYMENTS, key="int", key_column="id", value="payload struct<paid: int>")
    orders = orders.select(F.col("payload.item").alias("item"), F.col("payload.amount").alias("amount"))
    payments = payments.select(F.col("payload.paid").alias("paid"))
    joined = orders.join(payments, name="orders-payments")
    row = F.struct("item", "amount", "paid").alias("payload")
    joined.select(_make_schema(item="string", amount="int32", paid="int32"), row).to(JOINED)
    return app


def _make_schema(**types: str) -> "Column":
    from pyspark.sql import functions as F

    fields = [
        F.struct(F.lit(kind).alias("type"), F.lit(True).alias("optional"), F.lit(name).alias("field"))
        for name, kind in types.items()
    ]
    schema = F.struct(F.lit("struct").alias("type"), F.array(*fields).alias("fields"), F.lit(False).alias("optional"))
    return schema.alias("schema")


if __name__ == "__main__":
    make_app(*sys.argv[1:]).run()
