"""An app that a test kills: it counts words by key in small batches and runs until it is killed.

ottla stream run tests/streams/crashing.py --set bootstrap=... --set state_dir=...
"""

from pathlib import Path

from pyspark.sql import functions as F

from ottla.streams import App
from tests.samples import FULL
from tests.spark.settings import QUICK_JAVA
from tests.streams.striking import POINTS, make_striker

# A full run has the JVM of users, which writes an archive of classes when it ends; that takes as long as the rest.
config = {} if FULL else {"spark.driver.extraJavaOptions": QUICK_JAVA}
app = App("counter", master="local[2]", batch_rows=20, interval_ms=0, config=config)
assert app.options.state_dir is not None
numbers = app.stream("numbered", value="string")
buckets = numbers.select((F.col("value").cast("long") % 11).cast("string").alias("bucket"))
struck = buckets.peek(make_striker(Path(app.options.state_dir).parent, *POINTS))
# The key is made from the value, so rows pass an exchange.
struck.group_by("bucket").count(name="per-bucket").to("totals")
