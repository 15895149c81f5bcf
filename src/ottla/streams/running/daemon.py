"""The process that Spark forks the Python workers of apps from."""

from ottla.spark.daemon import run_daemon
from ottla.streams.running.handover import note_executor

if __name__ == "__main__":
    note_executor()
    run_daemon(["ottla.streams.running.tasks"])
