"""`ottla user create|alter|list|delete`: users who log in with SCRAM. Passwords never leave this process."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from ottla.cli.client import create_action_adder, open_own_client
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import int_between
from ottla.cli.output import add_format_argument, show_rows
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""Name -> Kafka's number, and the name of the hash."""
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16_384
_NAMES = {number: name for name, (number, _) in MECHANISMS.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    create = action("create", "create a user who logs in with SCRAM")
    _add_password_arguments(create)
    alter = action("alter", "change a user's password")
    _add_password_arguments(alter)
    add_format_argument(action("list", "list users"))
    delete = action("delete", "delete users")
    delete.add_argument("names", nargs="+", metavar="USER")
    _add_mechanism_argument(delete, "only this mechanism; may be repeated")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if a user does not exist")


def _add_password_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="USER")
    parser.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
    parser.add_argument("--password-file", metavar="FILE", help="read the password from the first line of a file")
    parser.add_argument("--generate", action="store_true", help="make a password and print it")
    _add_mechanism_argument(parser, "SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated (default: both)")
    parser.add_argument(
        "--iterations",
        type=int_between(ITERATIONS_MIN, ITERATIONS_MAX),
        default=ITERATIONS_MIN,
        help=f"how much work a guess takes (default: {ITERATIONS_MIN})",
    )


def _add_mechanism_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "--mechanism", action="append", default=[], type=str.upper, choices=tuple(MECHANISMS), help=help_text
    )


def run(options: argparse.Namespace) -> int:
    actions = {"create": _create, "alter": _alter, "list": _list, "delete": _delete}
    actions[options.action](options)
    return 0


def _create(options: argparse.Namespace) -> None:
    password = _find_password(options)
    with open_own_client(options) as own:
        there = find_users(own).get(options.name, {})
        mechanisms = options.mechanism or list(MECHANISMS)
        taken = [mechanism for mechanism in mechanisms if mechanism in there]
        if taken:
            raise CommandError(f"user {options.name!r} exists ({', '.join(taken)}); `ottla user alter` changes it")
        set_password(own, options.name, password, mechanisms, options.iterations)
    _report(options, "created", password)


def _alter(options: argparse.Namespace) -> None:
    password = _find_password(options)
    with open_own_client(options) as own:
        users = find_users(own)
        _require(options.name, users)
        mechanisms = options.mechanism or list(users[options.name])
        set_password(own, options.name, password, mechanisms, options.iterations)
    _report(options, "changed", password)


def _report(options: argparse.Namespace, done: str, password: str) -> None:
    print(f"user {options.name!r} {done}{f', with the password {password}' if options.generate else ''}")


def _list(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        users = find_users(own)
    rows = [
        (name, mechanism, iterations)
        for name, mechanisms in sorted(users.items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]
    show_rows(options.format, ("user", "mechanism", "iterations"), rows)


def _delete(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        users = find_users(own)
        for name in options.names:
            if name not in users and options.if_exists:
                continue
            _require(name, users)
            mechanisms = options.mechanism or list(users[name])
            for mechanism in mechanisms:
                delete_mechanism(own, name, mechanism)
            print(
                f"user {name!r} deleted" if not options.mechanism else f"user {name!r}: {', '.join(mechanisms)} deleted"
            )


def delete_mechanism(client: "Client", user: str, mechanism: str) -> None:
    """Delete the credential with which a user logs in by one mechanism."""
    from ottla.client import scram_users

    with _explaining():
        scram_users.delete_mechanism(client, user, mechanism)


def find_users(client: "Client", *, required: bool = True) -> dict[str, dict[str, int]]:
    """Every user, with the iterations of each mechanism. `required`: a broker without SCRAM is an error."""
    from ottla.client.connection import name_error
    from ottla.errors import ErrorCode, KafkaError
    from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

    try:
        answer = client.ask_any(DescribeUserScramCredentialsRequest(users=None))
    except KafkaError as error:
        if required or error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}
    if answer.error_code:
        name = name_error(answer.error_code)
        raise CommandError(f"cannot list users: {answer.error_message or name} ({name})")
    return {
        user.user: {_NAMES.get(each.mechanism, str(each.mechanism)): each.iterations for each in user.credential_infos}
        for user in answer.results
        if not user.error_code
    }


def set_password(client: "Client", user: str, password: str, mechanisms: list[str], iterations: int) -> None:
    """The broker gets a salted hash of the password, never the password."""
    from ottla.client import scram_users

    with _explaining():
        scram_users.set_password(client, user, password, mechanisms, iterations)


@contextmanager
def _explaining() -> Iterator[None]:
    from ottla.errors import KafkaError

    try:
        yield
    except KafkaError as error:
        raise CommandError(f"{error.message} ({error.code.name})") from None


def _require(name: str, users: dict[str, dict[str, int]]) -> None:
    if name not in users:
        raise CommandError(f"there is no user {name!r}{suggest(name, users)}")


def _find_password(options: argparse.Namespace) -> str:
    if options.password_stdin or options.password_file == "-":
        password = _read_line(sys.stdin, "standard input")
    elif options.password_file is not None:
        with open(options.password_file, encoding="utf-8") as file:
            password = _read_line(file, options.password_file)
    elif options.generate:
        import secrets

        return secrets.token_urlsafe(18)
    elif sys.stdin.isatty():
        from getpass import getpass

        password = getpass(f"Password of {options.name}: ")
        if password != getpass("The same again: "):
            raise CommandError("the passwords differ")
    else:
        raise CommandError("give the password with --password-stdin or --password-file, or --generate one", USAGE_ERROR)
    if not password:
        raise CommandError("the password is empty", USAGE_ERROR)
    return password


def _read_line(file: TextIO, name: str) -> str:
    try:
        return file.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise CommandError(f"{name}: the password is not UTF-8 text", USAGE_ERROR) from None
