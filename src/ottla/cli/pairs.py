"""Arguments of the form `key=value`."""

from collections.abc import Iterable

from ottla.cli.command_error import USAGE_ERROR, CommandError


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` arguments as a dictionary."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option}: {text!r} is not key=value", USAGE_ERROR)
        found[key.strip()] = value
    return found
