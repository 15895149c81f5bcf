"""An app that a test kills: tables that are joined by key, joined by a foreign key, and counted by another key.

ottla stream run tests/streams/crashing_tables.py --set bootstrap=... --set state_dir=...
"""

from pyspark.sql import functions as F

from ottla.streams import App
from tests.samples import FULL
from tests.spark.settings import QUICK_JAVA

config = {} if FULL else {"spark.driver.extraJavaOptions": QUICK_JAVA}
app = App("tables", master="local[2]", batch_rows=20, interval_ms=0, config=config)
orders = app.table("orders", key="string", value="customer string, amount long, town string")
notes = app.table("notes", key="string", value="note string")
customers = app.table("customers", key="string", value="name string")
orders.join(notes, how="left", name="order-notes").to("noted")
orders.join(customers, on=orders.customer, name="order-customers").to("resolved")
orders.group_by(F.upper("town").alias("city")).count(name="per-city").to("cities")
