"""The process that Spark forks the Python workers of connectors from."""

from ottla.spark.daemon import run_daemon

if __name__ == "__main__":
    run_daemon(["ottla.connect.running.source_tasks", "ottla.connect.running.sink_tasks"])
