"""Commands with the names of Apache Kafka's tools. `kafka-topics.sh --list` is `ottla kafka topics --list`."""

import sys
from pathlib import PurePath

from ottla.cli import main as run_ottla

__version__ = "0.1.0"


def main() -> int:
    """The tool by whose name the program was started."""
    return run_ottla(["kafka", PurePath(sys.argv[0]).name, *sys.argv[1:]])
