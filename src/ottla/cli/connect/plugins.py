"""`ottla connect plugins [PLUGIN]` and `ottla connect validate FILE`."""

import argparse
from urllib.parse import quote

from ottla.cli.command_error import FAILURE, CommandError
from ottla.cli.connect.asking import ask, read_configuration
from ottla.cli.output import JSON, show_json, show_rows, show_table


def run_plugins(options: argparse.Namespace) -> int:
    if options.name is None:
        found = ask(options.url, "GET", f"/connector-plugins?connectorsOnly={str(not options.all).lower()}")
        rows = [[each["class"], each["type"], each["version"]] for each in found]
        show_rows(options.format, ["class", "type", "version"], rows)
        return 0
    settings = ask(options.url, "GET", f"/connector-plugins/{quote(options.name, safe='')}/config")
    if options.format == JSON:
        show_json(settings)
        return 0
    rows = [
        [
            each["name"],
            each["type"].lower(),
            "required" if each["required"] else each["default_value"],
            each["documentation"],
        ]
        for each in settings
    ]
    show_table(["setting", "type", "default", "what it does"], rows)
    return 0


def run_validate(options: argparse.Namespace) -> int:
    """Status 1, with one line for each error, if the configuration is wrong."""
    name, config, _ = read_configuration(options.file, options.settings)
    class_name = config.get("connector.class")
    if class_name is None:
        raise CommandError(f"{name}: connector.class is missing")
    report = ask(options.url, "PUT", f"/connector-plugins/{quote(class_name, safe='')}/config/validate", config)
    wrong = [(each["value"]["name"], error) for each in report["configs"] for error in each["value"]["errors"]]
    if not wrong:
        print(f"{name}: the configuration is right")
        return 0
    show_table(["setting", "error"], wrong)
    return FAILURE
