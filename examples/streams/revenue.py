"""Revenue of each shop per minute of event time: one row for each minute, when nothing can change it any more.

A minute is closed ten seconds after its end, by the times of the orders. An order that comes later than that is written
to a topic of its own. If no orders come at all for thirty seconds, the clock closes what is open.
"""

from pyspark.sql import functions as F

from ottla.streams import App, tumbling

app = App("revenue")
orders = app.stream("orders", value="shop string, price double, pieces int, at timestamp", time="at")
minutes = orders.group_by("shop").window(tumbling("1 minute", grace="10 seconds", close_idle="30 seconds"))
minutes.agg(
    F.sum(F.col("price") * F.col("pieces")).alias("revenue"),
    F.count("*").alias("orders"),
    name="revenue-per-minute",
    emit="final",
    late="orders-late",
).to("revenue-per-minute")
