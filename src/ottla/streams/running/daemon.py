"""The process that Spark forks the Python workers of apps from."""

from ottla.spark.daemon import run_daemon

if __name__ == "__main__":
    run_daemon(["ottla.streams.running.tasks"])
