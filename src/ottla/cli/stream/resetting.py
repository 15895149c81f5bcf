"""`ottla stream reset APP`: deletes what an app has made for itself, so that its next start begins anew.

Topics that the app reads or writes for others stay as they are, so its output is written again.
"""

import argparse
import os
import platform
import shutil
from typing import TYPE_CHECKING

from ottla.cli.client import open_own_client
from ottla.cli.command_error import CommandError
from ottla.cli.stream.apps import find_app, find_state

if TYPE_CHECKING:
    from ottla.client.client import Client


def run_reset(options: argparse.Namespace) -> int:
    from ottla.streams.running.internal_topics import delete_topics
    from ottla.streams.running.registration import forget

    with open_own_client(options) as client:
        app = find_app(client, options.name)
        if find_state(app) == "running":
            raise CommandError(f"app {app.app!r} is running; stop it first (ottla stream stop {app.app})")
        is_here = app.host == platform.node()
        if options.dry_run:
            _show("would delete", app.internal_topics, app.groups, app.state_dirs if is_here else ())
            return 0
        topics = delete_topics(client, app.internal_topics)
        for group in app.groups:
            _delete_group(client, group)
        if is_here:
            for directory in app.state_dirs:
                shutil.rmtree(directory, ignore_errors=True)
        forget(client, app.app)
    _show("deleted", topics, app.groups, app.state_dirs if is_here else ())
    if not is_here and app.state_dirs:
        print(f"the state of the app is on {app.host}; delete there: {', '.join(app.state_dirs)}")
    return 0


def _show(verb: str, topics: object, groups: object, directories: object) -> None:
    for what, names in (("topic", topics), ("group", groups), ("directory", directories)):
        assert isinstance(names, list | tuple)
        for name in names:
            print(f"{verb} {what} {os.fspath(name)}")


def _delete_group(client: "Client", group: str) -> None:
    from ottla.errors import ErrorCode, KafkaError
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest

    answer = client.ask_coordinator("group", group, DeleteGroupsRequest(groups_names=[group]))
    for result in answer.results:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise KafkaError(ErrorCode(result.error_code), f"cannot delete group {group!r}")
