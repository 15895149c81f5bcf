"""The demo's topics by name, the app that reads them, and how the topics are made."""

from collections.abc import Mapping

from ottla.cli.client import CommandClient
from ottla.topic_partition import TopicPartition

CUSTOMERS = "customers"
ORDERS = "orders"
PAGE_VIEWS = "page-views"
SALES = "sales"
REVENUE = "revenue"
REJECTED = "orders-rejected"
RESULTS = (SALES, REVENUE, REJECTED)

APP = "shop"
"""The pipeline, and its consumer group."""
SOURCES = (CUSTOMERS, ORDERS, PAGE_VIEWS)
EXCHANGE = f"{APP}-{REVENUE}-repartition"
"""On the way from the partitions of customers to those of categories. The app creates it."""

PARTITIONS = 3
COMPACTED = {"cleanup.policy": "compact"}
KEPT = {"retention.ms": "-1"}
"""The records of the demo are of a day in January, and would be deleted soon."""
SETTINGS: Mapping[str, Mapping[str, str]] = {CUSTOMERS: COMPACTED, REVENUE: COMPACTED}


def create_topics(client: CommandClient) -> None:
    from confluent_kafka.cimpl import NewTopic

    names = (*SOURCES, *RESULTS)
    topics = [NewTopic(name, num_partitions=PARTITIONS, config=dict(SETTINGS.get(name, KEPT))) for name in names]
    for name, created in client.change(client.admin.create_topics, topics).items():
        client.wait_for(created, f"topic {name!r}")


def places(topics: tuple[str, ...]) -> list[TopicPartition]:
    """All partitions of these topics."""
    return [TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)]
