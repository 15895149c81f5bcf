"""Every view of a console as it can be copied, for tests that run what is copied."""

from ottla.console import copying
from ottla.console.console import Options
from ottla.console.facts.searching import KEY, VALUE, Search
from ottla.console.snippets import Copies

TOPIC = "it.is-copied"
WRITTEN = "it.is-written"
GROUP = "it's a $(group)"


def make_copies(options: Options) -> dict[str, Copies]:
    """Views of a topic with records and a group that reads it, in a cluster with ACLs."""

    def records(
        start: str, number: int | None = None, search: Search = copying.NO_SEARCH, part: int | None = None
    ) -> Copies:
        return copying.copy_records(options, TOPIC, partition=part, start=start, number=number, limit=3, search=search)

    return {
        "cluster": copying.copy_cluster(options),
        "broker": copying.copy_broker(options, 1),
        "topics": copying.copy_topics(options, True),
        "topic": copying.copy_topic(options, TOPIC),
        "settings": copying.copy_settings(options, TOPIC),
        "groups": copying.copy_groups(options),
        "group": copying.copy_group(options, GROUP),
        "topic groups": copying.copy_topic_groups(options, TOPIC, [GROUP]),
        "newest": records("newest"),
        "oldest": records("oldest", part=0),
        "offset": records("offset", 2),
        "time": records("time", 1_700_000_000_000),
        "search": records("newest", search=Search("it's [5]")),
        "search in keys": records("oldest", search=Search("k", KEY)),
        "pattern": records("oldest", search=Search("\\[[45]\\]", VALUE, is_pattern=True)),
        "produce": copying.copy_produce(options, WRITTEN),
        "transactions": copying.copy_transactions(options),
        "access": copying.copy_access(options),
        "apps": copying.copy_apps(options),
    }
