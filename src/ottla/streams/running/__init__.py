"""The driver and its tasks on Spark: batches of a subtopology as jobs, each task in a transaction of its own.

driver.py           a run of an app: plan, topics, state servers, a thread for each subtopology
foreground.py       signals and progress of an app in a terminal  pages.py         health, progress, metrics over HTTP
loop.py             the thread of a subtopology: plan a batch, run it, take the reports, start failed tasks anew
jobs.py             orders as Spark jobs                          sessions.py       SparkContext and session of an app
daemon.py           the process that Spark forks its Python workers from
work.py             orders and reports, as JSON                   tasks.py          a batch in Spark's Python workers
transactions.py     steps, records and offsets of a batch         bad_rows.py       rows that are not processed
state_access.py     a task's stores                               handover.py       from one Python worker to the next
positions.py        committed offsets with stream times           idleness.py       time that passes without records
state_servers.py    which state server has which partition        internal_topics.py  changelogs, repartition topics
local_state.py      state servers beside the driver               cluster_state.py  state servers on hosts of a cluster
registration.py     which apps run where, in a compacted topic    progress.py       counters, rates and lag
continuity.py       whether what an app has left behind is all there when it starts again
troubles.py         tasks that fail in a row: when each is tried again, when the app ends
sifting.py          finds the rows for which a Column fails
following.py        positions of tables that are only there for queries
purging.py          what all readers of a repartition topic have read
hearing.py          source partitions that hold up windows until they are heard of
settings.py         what an app's options mean for clients        explaining.py     failures as one line
"""
