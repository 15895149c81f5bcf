"""`ottla profile create|use|list|show|delete`: settings of clusters, kept under names."""

import argparse
import os
import sys

from ottla.cli.client_settings import BOOTSTRAP, DEFAULT_BOOTSTRAP, read_properties_file
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.output import add_format_argument, show_rows
from ottla.cli.pairs import parse_pairs
from ottla.cli.profiles import PROFILE_VARIABLE, Profiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add_action(name: str, purpose: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."
        )
        return made

    create = add_action("create", "keep a cluster's address and settings under a name")
    create.add_argument("name", metavar="NAME")
    create.add_argument("-b", "--bootstrap", metavar="HOST:PORT", help="where to find the cluster")
    create.add_argument(
        "-X",
        action="append",
        default=[],
        dest="client_settings",
        metavar="KEY=VALUE",
        help="a setting of Kafka's clients, for example security.protocol=SSL; may be repeated",
    )
    create.add_argument("--command-config", metavar="FILE", help="take the settings of a properties file")
    create.add_argument(
        "--password-stdin",
        action="store_true",
        help="read sasl.password from standard input, so that the list of processes does not show it",
    )
    create.add_argument("--use", action="store_true", help="use it from now on")
    create.add_argument("--force", action="store_true", help="replace a profile of the same name")
    use = add_action("use", "use a profile in commands without --profile")
    use.add_argument("name", metavar="NAME")
    add_format_argument(add_action("list", "list profiles"))
    show = add_action("show", "show the settings of a profile, without its secrets")
    show.add_argument("name", metavar="NAME", nargs="?", help="(default: the profile in use)")
    show.add_argument("--secrets", action="store_true", help="show passwords and keys too")
    add_format_argument(show)
    delete = add_action("delete", "delete profiles")
    delete.add_argument("names", nargs="+", metavar="NAME")


def run(options: argparse.Namespace) -> int:
    actions = {"create": _create, "use": _use, "list": _list, "show": _show, "delete": _delete}
    actions[options.action](options, Profiles(os.environ))
    return 0


def _create(options: argparse.Namespace, profiles: Profiles) -> None:
    from ottla.client.settings import ClientSettings

    if profiles.has(options.name) and not options.force:
        raise CommandError(f"profile {options.name!r} exists; --force replaces it", USAGE_ERROR)
    settings = read_properties_file(options.command_config) if options.command_config is not None else {}
    if options.bootstrap is not None:
        settings[BOOTSTRAP] = options.bootstrap
    settings |= parse_pairs(options.client_settings, "-X")
    settings.setdefault(BOOTSTRAP, DEFAULT_BOOTSTRAP)
    if options.password_stdin:
        settings["sasl.password"] = sys.stdin.readline().rstrip("\r\n")
    try:
        ClientSettings.of(settings)
    except ValueError as error:
        raise CommandError(f"profile {options.name!r}: {error}", USAGE_ERROR) from None
    profiles.write(options.name, settings)
    print(f"profile {options.name!r} created")
    if options.use:
        profiles.use(options.name)
        print(f"profile {options.name!r} is in use")


def _use(options: argparse.Namespace, profiles: Profiles) -> None:
    profiles.use(options.name)
    print(f"profile {options.name!r} is in use")


def _list(options: argparse.Namespace, profiles: Profiles) -> None:
    current = _find_current(profiles)
    rows = []
    for name in profiles.list_names():
        settings = profiles.read(name)
        protocol = settings.get("security.protocol", "plaintext").lower()
        user = settings.get("sasl.username")
        rows.append((name, settings.get(BOOTSTRAP), protocol, user, "yes" if name == current else "no"))
    show_rows(options.format, ("profile", "bootstrap", "security", "user", "in_use"), rows)


def _show(options: argparse.Namespace, profiles: Profiles) -> None:
    from ottla.client.security import hide_secrets

    name = options.name or _find_current(profiles)
    if not name:
        raise CommandError("no profile is in use; name one, or choose one with `ottla profile use`", USAGE_ERROR)
    settings = profiles.read(name)
    shown = settings if options.secrets else hide_secrets(settings)
    show_rows(options.format, ("setting", "value"), sorted(shown.items()))


def _delete(options: argparse.Namespace, profiles: Profiles) -> None:
    for name in options.names:
        profiles.delete(name)
        print(f"profile {name!r} deleted")


def _find_current(profiles: Profiles) -> str:
    return os.environ.get(PROFILE_VARIABLE) or profiles.find_current()
