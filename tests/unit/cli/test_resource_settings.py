"""How `ottla config set` and `ottla topic alter` parse the changes that they are given."""

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.resource_settings import Change, changes_of


def test_settings_are_set_appended_subtracted_and_deleted() -> None:
    assert changes_of(["a.b=1", "list+=x", "list-=y,z", "empty="], ["gone"]) == [
        Change("a.b", "SET", "1"),
        Change("list", "APPEND", "x"),
        Change("list", "SUBTRACT", "y,z"),
        Change("empty", "SET", ""),
        Change("gone", "DELETE"),
    ]


def test_a_value_may_contain_the_separator() -> None:
    assert changes_of(["a-b=c=d-=e+=f"], []) == [Change("a-b", "SET", "c=d-=e+=f")]


@pytest.mark.parametrize("text", ["", "a", "=1", "+=1", "a b=1"])
def test_a_text_that_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not KEY=VALUE"):
        changes_of([text], [])
