"""`ottla config list|get|set|delete`: settings of topics, brokers, groups, loggers and client metrics, and quotas."""

import argparse
from typing import TYPE_CHECKING

from ottla.cli.client import find_topic, open_own_client
from ottla.cli.client_settings import BOOTSTRAP, add_client_arguments
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.config_listing import ListedSetting, find_own_source, list_settings
from ottla.cli.output import JSON, add_format_argument, show_json, show_rows, show_table
from ottla.cli.quota_settings import QUOTA_KINDS, change_quota_settings, read_quota_settings
from ottla.cli.resource_settings import (
    KINDS,
    Change,
    Setting,
    change_settings,
    changes_of,
    check_broker_settings,
    describe_resource,
    read_settings,
)
from ottla.cli.suggestions import suggest
from ottla.cli.user import MECHANISMS

if TYPE_CHECKING:
    from ottla.client.client import Client

SECRET = "(secret)"
ABOUT_BROKERS = ("broker", "broker-logger")
WITH_DEFAULTS = ("broker", *QUOTA_KINDS)
ALWAYS_SET = "min.insync.replicas"
"""For all brokers together: clusters with eligible leader replicas (KIP-966) let it be changed but not removed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    get = actions.add_parser("get", help="show settings", description="Show settings and where they come from.")
    _add_resource_arguments(get)
    get.add_argument("keys", nargs="*", default=[], metavar="KEY", help="only these (default: all)")
    get.add_argument("--changed", action="store_true", help="only settings that were set")
    add_format_argument(get)
    change = actions.add_parser("set", help="change settings", description="Change settings; the others stay.")
    _add_resource_arguments(change)
    change.add_argument(
        "assignments",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="KEY+=VALUE and KEY-=VALUE add to a list and remove from it",
    )
    change.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="reset to the default; may be repeated"
    )
    change.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    delete = actions.add_parser(
        "delete", help="reset settings to their defaults", description="Reset settings to their defaults."
    )
    _add_resource_arguments(delete)
    delete.add_argument("keys", nargs="*", default=[], metavar="KEY", help="the settings to reset")
    delete.add_argument(
        "--all", action="store_true", help=f"every setting that was set for it; {ALWAYS_SET} of all brokers stays"
    )
    delete.add_argument("--dry-run", action="store_true", help="only ask whether it could be done")
    listing = actions.add_parser(
        "list",
        help="list what has settings of its own",
        description="List the topics, brokers, ... of a kind that have settings of their own, and these.",
    )
    add_client_arguments(listing)
    listing.add_argument("kind", choices=KINDS)
    add_format_argument(listing)


def _add_resource_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name", nargs="?", metavar="NAME", help="the name of a topic, ..., or the id of a broker")
    parser.add_argument(
        "--default", action="store_true", help="the settings of all brokers, users, client ids or addresses; no NAME"
    )


def run(options: argparse.Namespace) -> int:
    if options.action == "list":
        _list(options)
        return 0
    _settle_name(options)
    if options.kind in ABOUT_BROKERS and not options.default and not options.name.isdecimal():
        raise CommandError(f"config: {options.name!r} is not a broker's id", USAGE_ERROR)
    if options.action == "get":
        _get(options)
    elif options.action == "set":
        _set(options, changes_of(options.assignments, options.unset))
    else:
        _delete(options)
    return 0


def _settle_name(options: argparse.Namespace) -> None:
    """With --default there is no name: what stands in its place is the first key or assignment."""
    if options.default and options.kind not in WITH_DEFAULTS:
        raise CommandError(f"config: --default is for {', '.join(WITH_DEFAULTS)}", USAGE_ERROR)
    if not options.default and not options.name:
        raise CommandError(f"config: name a {options.kind}{' or give --default' * (options.kind in WITH_DEFAULTS)}", 2)
    if options.default and options.name is not None:
        (options.assignments if options.action == "set" else options.keys).insert(0, options.name)
    if options.default:
        options.name = ""


def _get(options: argparse.Namespace) -> None:
    settings = _read(options)
    known = {setting.name for setting in settings}
    unknown = [key for key in options.keys if key not in known]
    if unknown:
        hint = suggest(unknown[0], known)
        what = describe_resource(options.kind, options.name)
        raise CommandError(f"{what} has no setting {', '.join(map(repr, unknown))}{hint}")
    wanted = [
        setting
        for setting in settings
        if (not options.keys or setting.name in options.keys) and (setting.changed or not options.changed)
    ]
    if options.format == JSON:
        show_json([setting._asdict() for setting in wanted])
    else:
        show_table(("setting", "value", "source"), [(item.name, _shown(item), item.source) for item in wanted])


def _shown(setting: Setting) -> str | None:
    return SECRET if setting.sensitive else setting.value


def _list(options: argparse.Namespace) -> None:
    with open_own_client(options) as own:
        rows = list_settings(own, options.kind)
    show_rows(options.format, ListedSetting._fields, rows)


def _delete(options: argparse.Namespace) -> None:
    if bool(options.keys) == options.all:
        raise CommandError("config delete: name the settings to reset, or give --all", USAGE_ERROR)
    if options.all and options.kind == "broker-logger":
        raise CommandError("config delete: name the loggers whose levels shall be reset", USAGE_ERROR)
    keys = options.keys
    if options.all:
        own = find_own_source(options.kind, options.name)
        kept = (*MECHANISMS, ALWAYS_SET) if options.kind == "broker" and options.default else MECHANISMS
        keys = [each.name for each in _read(options) if each.source == own and each.name not in kept]
    if not keys:
        print(f"{describe_resource(options.kind, options.name)}: nothing was set")
        return
    _set(options, changes_of((), keys))


def _set(options: argparse.Namespace, changes: list[Change]) -> None:
    if not changes:
        raise CommandError("config set: nothing to change; give KEY=VALUE or --unset KEY", USAGE_ERROR)
    with open_own_client(options) as own:
        if options.kind in QUOTA_KINDS:
            change_quota_settings(own, options.kind, options.name or None, changes, dry_run=options.dry_run)
            return
        _require_resource(own, options)
        if options.kind == "broker":
            check_broker_settings(own, [change.name for change in changes])
        change_settings(own, options.kind, options.name, changes, dry_run=options.dry_run)


def _read(options: argparse.Namespace) -> list[Setting]:
    with open_own_client(options) as own:
        if options.kind in QUOTA_KINDS:
            return read_quota_settings(own, options.kind, options.name or None)
        _require_resource(own, options)
        return read_settings(own, options.kind, options.name)


def _require_resource(own: "Client", options: argparse.Namespace) -> None:
    """CommandError if there is no such topic or broker."""
    if options.kind == "topic":
        find_topic(own, options.name)
    if options.kind in ABOUT_BROKERS and options.name:
        known = own.list_brokers()
        if int(options.name) not in known:
            address = own.raw_settings[BOOTSTRAP]
            raise CommandError(f"there is no broker {options.name} at {address}, only {', '.join(map(str, known))}")
