"""The demo's pipeline, a process of its own: an app of `ottla.streams` in which orders become sales and revenue.

    orders, customers  ->  sales            valid orders, joined with the table of customers
    orders             ->  orders-rejected  invalid orders with the reason
    sales, page-views  ->  revenue          by minute and category, which late orders still change

Everything is written exactly once, and the stores `revenue` and `customers` answer queries over HTTP. Each message on
standard output is a line of JSON, and the end of standard input ends the pipeline.

    python -m ottla.cli.demo.pipeline <bootstrap> <directory>
"""

import json
import select
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from ottla.cli.demo.books import GUEST
from ottla.cli.demo.shop import GRACE_MINUTES, INCOMPLETE, NO_AMOUNT, NOT_JSON
from ottla.cli.demo.topics import APP, CUSTOMERS, ORDERS, PAGE_VIEWS, REJECTED, REVENUE, SALES
from ottla.streams import App, StreamsError, tumbling

CHECKED = "order LONG, category STRING, cents LONG, reason STRING, record STRING"
REJECTION = "reason STRING, record STRING"
SALE = "order LONG, category STRING, cents LONG, country STRING"
TALLY = "category STRING, orders LONG, cents LONG, views LONG"
CONFIG = {"spark.driver.memory": "1g"}
GLANCE_S = 0.1

Row = Mapping[str, Any]


def create_app(bootstrap: str, directory: str) -> App:
    """The event time is that of the records. The key of orders and of customers is the customer's number."""
    app = App(
        APP,
        bootstrap=bootstrap,
        state_dir=directory,
        on_bad_record="dead-letter",
        on_error="dead-letter",
        config=CONFIG,
    )
    customers = app.table(CUSTOMERS, key_column="customer", value="country STRING")
    orders = app.stream(ORDERS, key="string", key_column="customer", value="string").map(check_order, schema=CHECKED)
    invalid, valid = orders.branch(lambda row: row["reason"] is not None)
    invalid.map(lambda row: pick(row, "reason", "record"), schema=REJECTION).to(REJECTED)
    sales = valid.join(customers, how="left").map(make_sale, schema=SALE)
    sales.to(SALES)

    views = app.stream(PAGE_VIEWS, key="string", key_column="customer", value="category STRING")
    viewed = views.select("category", "0L AS orders", "0L AS cents", "1L AS views")
    both = sales.map(count_sale, schema=TALLY).merge(viewed)
    minutes = both.group_by("category").window(tumbling("1 minute", grace=f"{GRACE_MINUTES} minutes"))
    totals = [F.sum(column).alias(column) for column in ("orders", "cents", "views")]
    revenue = minutes.agg(*totals, name=REVENUE).to_stream()
    revenue.map(name_minute, schema=f"minute STRING, minute_ms LONG, {TALLY}").select_key("minute").to(REVENUE)
    return app


def check_order(row: Row) -> dict[str, Any]:
    """The fields of an order, or the reason why the record is none."""
    record = row["value"]
    found = {"record": record}
    try:
        order = json.loads(record or "")
    except ValueError:
        return {**found, "reason": NOT_JSON}
    fields = order if isinstance(order, dict) else {}
    number, category, cents = (fields.get(name) for name in ("order", "category", "cents"))
    if not isinstance(number, int) or not isinstance(category, str) or not isinstance(cents, int):
        return {**found, "reason": INCOMPLETE}
    return {**found, "order": number, "category": category, "cents": cents, "reason": None if cents > 0 else NO_AMOUNT}


def make_sale(row: Row) -> dict[str, Any]:
    return {**pick(row, "order", "category", "cents"), "country": row["country"] or GUEST}


def count_sale(row: Row) -> dict[str, Any]:
    return {**pick(row, "category", "cents"), "orders": 1, "views": 0}


def pick(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def name_minute(row: Row) -> dict[str, Any]:
    """A key by which a person finds the minute, such as "09:41 books"."""
    start = row["window_start"]
    return {**row, "minute": f"{start:%H:%M} {row['category']}", "minute_ms": int(start.timestamp() * 1000)}


def send_message(message: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def run_until_input_ends(app: App) -> None:
    """Says how long batches take, and that the app is ready once it has read the customers."""
    batches: dict[str, int] = {}
    is_ready = False
    while not select.select([sys.stdin], [], [], GLANCE_S)[0]:
        if app.wait(0):
            app.stop()  # raises what has ended it
            return
        for unit in app.progress()["subtopologies"]:
            name, count = unit["subtopology"], unit["batches"]
            if count > batches.get(name, 0):
                batches[name] = count
                send_message({"query": name, "ms": round(unit["batch_ms"])})
        if batches and not is_ready:
            is_ready = True
            send_message({"ready": True, "address": app.http_address})
    app.stop()


def main(bootstrap: str, directory: str) -> None:
    send_message({"step": "waiting for its JVM"})
    app = create_app(bootstrap, directory)
    send_message({"step": "waiting for the first batch"})
    try:
        app.start()
        run_until_input_ends(app)
    except StreamsError as error:
        send_message({"failure": str(error)})
    app.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
