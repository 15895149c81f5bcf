"""Where a broker's data is if nobody says otherwise."""

import os
from collections.abc import Mapping


def find_data_directory(environment: Mapping[str, str]) -> str:
    """The user's data directory, so that `ottla up` finds the same data from any working directory."""
    base = environment.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "ottla")
