"""`ottla kafka features`: kafka-features."""

import argparse

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.kafka.flags import TIMEOUT_MS, add_client_flags, add_switches, explain_code, open_client

METADATA = "metadata.version"
RELEASES = {30: "4.3-IV0", 29: "4.2-IV1", 28: "4.2-IV0", 27: "4.1-IV1", 26: "4.1-IV0", 25: "4.0-IV3"}
"""Names of levels of metadata.version; others are shown as numbers."""
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    actions = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    actions.add_parser("describe", help="show features and their levels")
    for name in ("upgrade", "downgrade", "disable"):
        action = actions.add_parser(name, help=f"{name} features")
        action.add_argument("--feature", action="append", default=[], metavar="NAME=LEVEL")
        switches = [("--dry-run", "only ask whether it could be done")]
        if name != "upgrade":
            switches.append(("--unsafe", "also if metadata may be lost"))
        add_switches(action, switches)


def run(options: argparse.Namespace) -> None:
    if options.action == "describe":
        _describe(options)
    else:
        _change(options)


def _describe(options: argparse.Namespace) -> None:
    from ottla import __version__
    from ottla.client.connection import CLIENT_ID
    from ottla.wire.messages.api_versions import ApiVersionsRequest

    with open_client(options) as client:
        answer = client.ask_any(ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__))
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    for each in sorted(answer.supported_features, key=lambda each: each.name):
        low, high, level = (
            _name_level(each.name, number) for number in (each.min_version, each.max_version, levels.get(each.name, 0))
        )
        print(
            f"Feature: {each.name}\tSupportedMinVersion: {low}\tSupportedMaxVersion: {high}\t"
            f"FinalizedVersionLevel: {level}\tEpoch: {answer.finalized_features_epoch}"
        )


def _name_level(feature: str, level: int) -> str:
    return RELEASES.get(level, str(level)) if feature == METADATA else str(level)


def _change(options: argparse.Namespace) -> None:
    from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

    kind = UPGRADE
    if options.action != "upgrade":
        kind = UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    updates = []
    for text in options.feature:
        name, _, level = text.partition("=")
        if options.action == "disable":
            level = "0"
        if not name or not level.isdecimal() or len(level) > 4:
            raise CommandError(f"--feature: {text!r} is not NAME=LEVEL", USAGE_ERROR)
        updates.append(FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=kind))
    if not updates:
        raise CommandError(f"{options.action}: give --feature", USAGE_ERROR)
    request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=updates, validate_only=options.dry_run)
    with open_client(options) as client:
        answer = client.connect_any().ask(request)
    if answer.error_code:
        raise CommandError(f"no feature was changed: {explain_code(answer.error_code, answer.error_message)}")
    for each in updates:
        done = "can be" if options.dry_run else "was"
        print(f"{each.feature} {done} {options.action}d to {each.max_version_level}.")
