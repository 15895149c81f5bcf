"""The process of a load generator: runs one job against one broker, the same way for every broker.

`python -m benchmarks.loads '{"job": "produce", ...}'` prints one line of JSON. Records go through librdkafka, small
requests through raw sockets. Only what the result names is timed: topics, connections and metadata are there before the
clock starts. Every job counts what arrived and fails when a record is missing.
"""

import json
import sys
from collections.abc import Callable

from benchmarks.loads import bulk, latency, replicated, small_requests, topics

Result = dict[str, float]


def create_topic(bootstrap: str, topic: str) -> Result:
    topics.create_topic(bootstrap, topic)
    return {}


def verify_topic(bootstrap: str, topic: str, records: int, delete: bool = False) -> Result:
    """Check that the topic has so many records, which another program has sent."""
    topics.verify_count(bootstrap, topic, records)
    if delete:
        topics.delete_topic(bootstrap, topic)
    return {}


def send_requests(
    bootstrap: str, topic: str, kinds: list[str], connections: int, seconds: float, broker_process_id: int
) -> Result:
    """Send small requests, one in flight on each connection. Produced records go to a topic of their own."""
    written = f"{topic}-written"
    for name in (topic, written):
        topics.create_topic(bootstrap, name)
    host, port = bootstrap.rsplit(":", 1)
    frames = small_requests.build_frames(kinds, topic, written)
    answered = small_requests.run_requests((host, int(port)), frames, connections, seconds, broker_process_id)
    for name in (topic, written):
        topics.delete_topic(bootstrap, name)
    return answered._asdict()


JOBS: dict[str, Callable[..., Result]] = {
    "create": create_topic,
    "verify": verify_topic,
    "produce": bulk.produce,
    "consume": bulk.consume,
    "synchronous": latency.measure_synchronous,
    "end-to-end": latency.measure_end_to_end,
    "requests": send_requests,
    "produce-replicated": replicated.produce,
    "consume-replicated": replicated.consume,
    "acknowledgements": replicated.measure_acknowledgements,
    "transactions": replicated.run_transactions,
}


def main() -> None:
    job = json.loads(sys.argv[1])
    print(json.dumps(JOBS[job.pop("job")](**job)))


if __name__ == "__main__":
    main()
