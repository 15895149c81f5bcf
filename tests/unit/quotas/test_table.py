"""Which quota counts for a client, against a naive model of Kafka's order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.changes import QuotaName
from ottla.cluster.quotas import make_entity
from ottla.quotas.table import QuotaTable, Who
from tests.samples import sample_size

KEY = "producer_byte_rate"
USERS = ("alice", "bob", "ANONYMOUS")
CLIENTS = ("app", "other", "")

Part = tuple[str, str | None]
Quotas = dict[tuple[QuotaName, ...], dict[str, float]]


def user_parts() -> st.SearchStrategy[list[Part]]:
    names = st.sampled_from([None, *USERS])
    return st.one_of(st.just([]), names.map(lambda name: [("user", name)]))


def client_parts() -> st.SearchStrategy[list[Part]]:
    names = st.sampled_from([None, *CLIENTS[:2]])
    return st.one_of(st.just([]), names.map(lambda name: [("client-id", name)]))


ENTITIES = st.tuples(user_parts(), client_parts()).filter(any).map(lambda parts: make_entity([*parts[0], *parts[1]]))
VALUES = st.dictionaries(st.sampled_from([KEY, "consumer_byte_rate"]), st.integers(1, 1000).map(float), min_size=1)


def find_naively(quotas: Quotas, user: str, client: str) -> tuple[Who, float] | None:
    """Go through Kafka's eight levels, the most specific first."""
    levels: list[tuple[list[Part], Who]] = [
        ([("user", user), ("client-id", client)], Who(user, client)),
        ([("user", user), ("client-id", None)], Who(user, client)),
        ([("user", user)], Who(user, None)),
        ([("user", None), ("client-id", client)], Who(user, client)),
        ([("user", None), ("client-id", None)], Who(user, client)),
        ([("user", None)], Who(user, None)),
        ([("client-id", client)], Who(None, client)),
        ([("client-id", None)], Who(None, client)),
    ]
    for parts, who in levels:
        value = quotas.get(make_entity(parts), {}).get(KEY)
        if value is not None:
            return who, value
    return None


@settings(max_examples=sample_size(50, 5000))
@given(st.dictionaries(ENTITIES, VALUES, max_size=12))
def test_the_most_specific_quota_counts(quotas: Quotas) -> None:
    table = QuotaTable.of(quotas, KEY)
    for user in USERS:
        for client in CLIENTS:
            assert table.find(user, client) == find_naively(quotas, user, client)
    assert len(table) == sum(KEY in values for values in quotas.values())
