"""`ottla acl add`: which ACLs its options and shortcuts stand for."""

import pytest

from ottla.cli import command_parser
from ottla.cli.acl import Acl, plan
from ottla.cli.command_error import CommandError


def planned(*arguments: str) -> list[tuple[str, ...]]:
    """Permission, operation, resource, pattern and name of each ACL."""
    return [acl[1:6] for acl in plan(command_parser({"acl"}).parse_args(["acl", "add", *arguments]))]


def test_options_are_multiplied() -> None:
    arguments = ["alice", "Group:x", "--topic", "a", "--topic", "b", "-o", "Read", "-o", "describe-configs"]
    options = command_parser({"acl"}).parse_args(["acl", "add", *arguments, "--host", "10.0.0.1", "--deny"])
    found = plan(options)
    assert len(found) == 8
    assert found[0] == Acl("User:alice", "deny", "read", "topic", "literal", "a", "10.0.0.1")
    assert {acl.principal for acl in found} == {"User:alice", "Group:x"}


def test_shortcuts_stand_for_what_clients_need() -> None:
    producer = planned("alice", "--producer", "--topic", "a", "--transactional-id", "t", "--idempotent")
    assert producer == [
        ("allow", "write", "topic", "literal", "a"),
        ("allow", "describe", "topic", "literal", "a"),
        ("allow", "create", "topic", "literal", "a"),
        ("allow", "write", "transactional-id", "literal", "t"),
        ("allow", "describe", "transactional-id", "literal", "t"),
        ("allow", "idempotent-write", "cluster", "literal", "kafka-cluster"),
    ]
    assert planned("alice", "--consumer", "--topic", "a", "--group", "g", "--prefixed") == [
        ("allow", "read", "topic", "prefixed", "a"),
        ("allow", "describe", "topic", "prefixed", "a"),
        ("allow", "read", "group", "prefixed", "g"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["alice"], "say what is allowed"),
        (["alice", "--topic", "a"], "say what is allowed"),
        (["alice", "--consumer", "--topic", "a"], "--consumer needs --group"),
        (["alice", "--producer"], "need --topic"),
        (["alice", "--producer", "--topic", "a", "--deny"], "operations that are allowed"),
        (["alice", "--topic", "", "-o", "read"], "is empty"),
        (["alice", "--topic", "a", "-o", "wirte"], "did you mean 'write'"),
    ],
)
def test_what_is_missing_is_said(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        planned(*arguments)
