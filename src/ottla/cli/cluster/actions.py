"""How the modules of `ottla cluster` add their actions."""

import argparse
from collections.abc import Callable
from typing import Any

from ottla.cli.client_settings import add_client_arguments

Actions = Any
"""What `add_subparsers` returns; argparse keeps its type private."""


def add_action(
    actions: Actions, name: str, purpose: str, run: Callable[[argparse.Namespace], int], *, client: bool = True
) -> argparse.ArgumentParser:
    """Add an action by its name and purpose, with the options of a client unless it talks to no broker."""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."
    )
    parser.set_defaults(run=run)
    if client:
        add_client_arguments(parser)
    return parser
