"""Did you mean ...?: the nearest name, found among few and among thousands."""

import pytest

from ottla.cli.suggestions import suggest

TOPICS = [*(f"topic-{number:05d}" for number in range(10_000)), "Orders.Daily", "b"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topc-00421", "topic-00421"),  # a letter is missing
        ("toppic-00421", "topic-00421"),  # one too many
        ("topix-00421", "topic-00421"),  # another one
        ("toipc-00421", "topic-00421"),  # two are swapped
        ("orders.dialy", "Orders.Daily"),
        ("ordres.daly", "Orders.Daily"),  # more than one slip
        ("a", ""),
        ("payments", ""),
    ],
)
def test_the_nearest_name_is_suggested(typed: str, meant: str) -> None:
    assert suggest(typed, TOPICS) == (f"; did you mean {meant!r}?" if meant else "")


def test_a_longer_name_is_nearer_than_another_short_one() -> None:
    assert suggest("abc", ["abd", "abcde"]) == "; did you mean 'abcde'?"


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert suggest("orders", []) == ""
    assert suggest("", ["orders"]) == ""
