"""Word count: how often each word has come, as a table that follows the lines.

ottla topic create lines
ottla topic create word-counts
ottla stream run examples/streams/word_count.py
echo 'to be or not to be' | ottla produce lines
ottla stream query word-count words
"""

from pyspark.sql import functions as F

from ottla.streams import App

app = App("word-count")
lines = app.stream("lines", value="string")
words = lines.select(F.explode(F.split(F.lower("value"), r"\W+")).alias("word")).filter("word != ''")
words.group_by("word").count(name="words").to("word-counts")
