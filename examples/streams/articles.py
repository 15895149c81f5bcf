"""Articles on their way to the readers: cleaned, without those that cannot be shown, and each text once.

Texts are compared by their fingerprint. One that was published within a week is not published again.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import functions as F

from ottla.streams import App, Context, Processor, ValueState


class FirstOnly(Processor):
    """Lets the first row of each key through. After a week without it, a row counts as new."""

    seen = ValueState("boolean", ttl="7 days")

    def process(self, row: dict[str, Any], context: Context) -> Iterator[dict[str, Any]]:
        if not self.seen.value:
            yield row
        self.seen.value = True


app = App("articles")
raw = app.stream("articles-raw", key="string", key_column="id", value="title string, body string")
cleaned = raw.select(
    F.trim("title").alias("title"),
    F.trim(F.regexp_replace(F.regexp_replace("body", "<[^>]*>", " "), r"\s+", " ")).alias("text"),
)
rejected, good = cleaned.branch("title is null or title = '' or text is null or text = ''")
rejected.to("articles-rejected")
once = good.group_by(F.sha2(F.lower("text"), 256).alias("fingerprint")).process(
    FirstOnly, schema="id string, title string, text string", name="published-texts"
)
once.select_key("id").select("title", "text").to("articles-published")
