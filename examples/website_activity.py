"""Website activity tracking: finds visits in page views, and counts the views of each page.

    python examples/website_activity.py [--bootstrap HOST:PORT]

Every page view is a record, and the visitor is its key. Two queries read the topic independently of each other: one
finds visits, which end after 30 minutes without a view, the other counts the views of each page. Both write their
results to topics exactly once.
"""

import json
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from stage import COMPACTED, create_topics, run, send, stream, table

import ottla.spark

VIEWS, VISITS, PAGES = "website.views", "website.visits", "website.pages"
PAUSE = timedelta(minutes=30)
LATENESS = timedelta(minutes=10)
MORNING = datetime.fromisoformat("2026-01-05T06:00:00Z")


class View(NamedTuple):
    at: datetime
    visitor: str
    page: str


def main(spark: SparkSession, bootstrap: str) -> None:
    create_topics(bootstrap, VIEWS, VISITS)
    create_topics(bootstrap, PAGES, settings=COMPACTED)
    views = make_views()
    send(bootstrap, VIEWS, ((view.visitor, to_json(view)) for view in views))

    parsed = stream(spark, bootstrap, VIEWS).select(
        f.from_json(f.col("value").cast("string"), "at TIMESTAMP, visitor STRING, page STRING").alias("view")
    )
    with TemporaryDirectory() as directory:
        for frame, topic, mode in (
            (find_visits(parsed.select("view.*")), VISITS, "append"),
            (count_pages(parsed.select("view.*")), PAGES, "complete"),
        ):
            query = ottla.spark.write_stream(
                frame,
                topic,
                mode=mode,
                checkpoint=f"{directory}/{topic}",
                group=f"{topic}-builder",
                options={"kafka.bootstrap.servers": bootstrap},
                trigger={"availableNow": True},
            )
            query.awaitTermination()

    visits = {(row.key, row.value) for row in read_strings(table(spark, bootstrap, VISITS))}
    pages = {row.key: int(row.value) for row in read_strings(table(spark, bootstrap, PAGES))}
    assert visits == expected_visits(views), "the visits differ from the expected ones"
    assert pages == Counter(view.page for view in views), "the page counts differ from the expected ones"
    print(f"{len(views)} page views, {len(visits)} visits that have ended. The pages that are viewed most:")
    for page, count in Counter(pages).most_common(3):
        print(f"  {count:4}  {page}")


def find_visits(views: DataFrame) -> DataFrame:
    """One row for each visit, as soon as no more view that belongs to it can arrive."""
    watched = views.withWatermark("at", f"{LATENESS.seconds} seconds")
    visits = watched.groupBy(f.session_window("at", f"{PAUSE.seconds} seconds").alias("visit"), "visitor").count()
    start = f.unix_seconds("visit.start").alias("start")
    return visits.select(f.col("visitor").alias("key"), f.to_json(f.struct(start, "count")).alias("value"))


def count_pages(views: DataFrame) -> DataFrame:
    """The counts of all pages, written again whenever one changes. Compaction keeps the newest count of each page."""
    return views.groupBy("page").count().selectExpr("page AS key", "string(count) AS value")


def read_strings(frame: DataFrame) -> list[Row]:
    return frame.selectExpr("string(key) AS key", "string(value) AS value").collect()


def make_views() -> list[View]:
    """The page views of a day, in order of time."""
    random = Random(1)
    views = []
    for number in range(30):
        at = MORNING + timedelta(seconds=random.randrange(6 * 3600))
        for _ in range(random.randrange(5, 20)):
            pause_s = random.choice((20, 90, 400, 2 * 3600))  # after the longest pause a new visit begins
            at += timedelta(seconds=random.randrange(1, pause_s))
            views.append(View(at, f"visitor-{number}", f"/page/{int(random.paretovariate(1.2))}"))
    return sorted(views)


def to_json(view: View) -> str:
    return json.dumps({"at": view.at.isoformat(), "visitor": view.visitor, "page": view.page})


def expected_visits(views: list[View]) -> set[tuple[str, str]]:
    """The visits computed without Spark: each visitor's views in order, split at long pauses."""
    visits: dict[str, list[list[datetime]]] = defaultdict(list)
    for at, visitor, _ in views:
        if visits[visitor] and at - visits[visitor][-1][-1] < PAUSE:
            visits[visitor][-1].append(at)
        else:
            visits[visitor].append([at])
    newest = max(view.at for view in views)
    return {
        (visitor, json.dumps({"start": int(times[0].timestamp()), "count": len(times)}, separators=(",", ":")))
        for visitor, visits_of_visitor in visits.items()
        for times in visits_of_visitor
        if times[-1] + PAUSE <= newest - LATENESS
    }


if __name__ == "__main__":
    run(main, __doc__)
