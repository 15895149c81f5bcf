"""The demo's topics and consumer groups, by name, and how the topics are made."""

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

SALES_GROUP = "shop-sales"
REVENUE_GROUP = "shop-revenue"
GROUPS = {SALES_GROUP: (ORDERS,), REVENUE_GROUP: (SALES, PAGE_VIEWS)}
"""Each group, and the topics that it reads."""

PARTITIONS = 3
COMPACTED = {"cleanup.policy": "compact"}
SETTINGS: Mapping[str, Mapping[str, str]] = {CUSTOMERS: COMPACTED, REVENUE: COMPACTED}


def create_topics(client: CommandClient) -> None:
    from confluent_kafka.cimpl import NewTopic

    names = (CUSTOMERS, ORDERS, PAGE_VIEWS, *RESULTS)
    topics = [NewTopic(name, num_partitions=PARTITIONS, config=dict(SETTINGS.get(name, {}))) for name in names]
    for name, created in client.ask(client.admin.create_topics, topics).items():
        client.wait_for(created, f"topic {name!r}")


def places(topics: tuple[str, ...]) -> list[TopicPartition]:
    """All partitions of these topics."""
    return [TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)]
