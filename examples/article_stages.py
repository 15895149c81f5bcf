"""Stream processing in stages: one query cleans articles, the next removes duplicates, with a topic after each stage.

    python examples/article_stages.py [--bootstrap HOST:PORT]

Agencies send articles with mark-up and odd spaces; some are empty, and many are sent twice. The first query cleans
them, the second drops articles that were published before. Each stage can be read, replayed and changed without the
other. Each batch is written in a transaction, so no article is lost or published twice, whenever a query stops.
"""

import json
import re
from collections.abc import Callable
from hashlib import sha256
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from stage import create_topics, run, send, stream, table

import ottla.spark

RAW, CLEAN, PUBLISHED = "articles.raw", "articles.clean", "articles.published"
TITLES = ("Rain <b>again</b>", "  Trains are late", "Bread costs\tmore", "<i>Cat</i> found", "Snow in <em>May</em>")
ARTICLES = 300


class Article(NamedTuple):
    agency: str
    title: str
    body: str


def main(spark: SparkSession, bootstrap: str) -> None:
    create_topics(bootstrap, RAW, CLEAN, PUBLISHED)
    articles = make_articles()
    half = len(articles) // 2
    with TemporaryDirectory() as directory:
        for part in (articles[:half], articles[half:]):  # duplicates are recognized after a restart, too
            send(bootstrap, RAW, ((each.agency, json.dumps(each._asdict())) for each in part))
            for stage, source, target in ((clean, RAW, CLEAN), (drop_duplicates, CLEAN, PUBLISHED)):
                run_stage(stage, stream(spark, bootstrap, source), target, bootstrap, directory)

    counts = {topic: table(spark, bootstrap, topic).count() for topic in (RAW, CLEAN, PUBLISHED)}
    rows = table(spark, bootstrap, PUBLISHED).selectExpr("string(key) AS key", "string(value) AS value").collect()
    published = {row.key: json.loads(row.value)["title"] for row in rows}
    assert len(rows) == len(published), "an article was published twice"
    assert published == expected_articles(articles), "the published articles differ from the expected ones"
    print(" -> ".join(f"{count} {topic}" for topic, count in counts.items()))
    for title in sorted(published.values())[:3]:
        print(f"  {title}")


def run_stage(
    stage: Callable[[DataFrame], DataFrame], records: DataFrame, topic: str, bootstrap: str, directory: str
) -> None:
    """Processes the records that are there, then stops. Without the trigger the query would run until it is stopped."""
    query = ottla.spark.write_stream(
        stage(records),
        topic,
        checkpoint=f"{directory}/{topic}",
        group=f"{topic}-builder",
        options={"kafka.bootstrap.servers": bootstrap},
        trigger={"availableNow": True},
    )
    query.awaitTermination()


def clean(records: DataFrame) -> DataFrame:
    """Removes mark-up and empty articles. The key is a hash of the text, so the same text always has the same key."""
    text = f.col("value").cast("string")
    article = f.from_json(text, "title STRING, body STRING")
    plain = records.select(*(remove_markup(article[field]).alias(field) for field in ("title", "body")))
    words = f.sha2(f.concat_ws("\n", "title", "body"), 256)
    return plain.where("body != ''").select(words.alias("key"), f.to_json(f.struct("title", "body")).alias("value"))


def drop_duplicates(records: DataFrame) -> DataFrame:
    """Drops articles whose key was seen within a day. The time is that of the record in the cleaned topic."""
    return records.withWatermark("timestamp", "1 day").dropDuplicatesWithinWatermark(["key"]).select("key", "value")


def remove_markup(text: Column) -> Column:
    return f.trim(f.regexp_replace(f.regexp_replace(text, "<[^>]*>", ""), r"\s+", " "))


def make_articles() -> list[Article]:
    random = Random(4)
    articles: list[Article] = []
    for number in range(ARTICLES):
        if articles and random.random() < 0.4:
            twin = random.choice(articles)
            articles.append(Article("copycat", f" {twin.title} ", twin.body.replace(" ", "  ")))
        else:
            body = "" if random.random() < 0.05 else f"<p>It happened {number} times.</p>"
            articles.append(Article(f"agency-{random.randrange(3)}", random.choice(TITLES), body))
    return articles


def expected_articles(articles: list[Article]) -> dict[str, str]:
    """The title of each article by the hash of its text, computed without Spark."""
    found = {}
    for article in articles:
        title, body = (" ".join(re.sub("<[^>]*>", "", text).split()) for text in (article.title, article.body))
        if body:
            found[sha256(f"{title}\n{body}".encode()).hexdigest()] = title
    return found


if __name__ == "__main__":
    run(main, __doc__)
