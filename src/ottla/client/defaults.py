"""The settings of a client that was given none: those that the command line uses too. The strongest last:

the default address    the profile of `ottla profile use`, or of $OTTLA_PROFILE    $OTTLA_BOOTSTRAP, $OTTLA_CLIENT_...
"""

import os
import re
from collections.abc import Mapping
from typing import Final

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
BOOTSTRAP: Final = "bootstrap.servers"
BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP"
VARIABLE_PREFIX: Final = "OTTLA_CLIENT_"
PROFILE_VARIABLE: Final = "OTTLA_PROFILE"
PROFILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
PROFILE_SUFFIX: Final = ".properties"

_CONNECTION: Final = re.compile(
    r"(ssl|sasl|security|socket|reconnect|retry|request|metadata|connections|send\.buffer|receive\.buffer|client"
    r"|default\.api|check)\..*"
)
"""Settings that every Kafka client has: how it finds brokers and logs in. Others are for producers or consumers."""


def is_connection_setting(name: str) -> bool:
    return name == BOOTSTRAP or _CONNECTION.fullmatch(name) is not None


def find_home(environment: Mapping[str, str]) -> str:
    """The directory of the user's configuration, with `profiles/` and the file `profile`."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "ottla")


def find_profile_path(environment: Mapping[str, str], name: str) -> str:
    return os.path.join(find_home(environment), "profiles", name + PROFILE_SUFFIX)


def find_current_profile(environment: Mapping[str, str]) -> str:
    """The name of the profile that was chosen with `ottla profile use`; empty if there is none, or if it is gone."""
    try:
        with open(os.path.join(find_home(environment), "profile"), encoding="utf-8") as file:
            name = file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return name if PROFILE_NAME.fullmatch(name) and os.path.exists(find_profile_path(environment, name)) else ""


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    if environment.get(BOOTSTRAP_VARIABLE):
        found[BOOTSTRAP] = environment[BOOTSTRAP_VARIABLE]
    for name, value in environment.items():
        if name.startswith(VARIABLE_PREFIX) and len(name) > len(VARIABLE_PREFIX):
            found[name.removeprefix(VARIABLE_PREFIX).lower().replace("_", ".")] = value
    return found


def find_default_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """ValueError if $OTTLA_PROFILE names a profile that is not there or cannot be read."""
    from ottla.config.properties import read_properties

    name = environment.get(PROFILE_VARIABLE) or find_current_profile(environment)
    found = {BOOTSTRAP: DEFAULT_BOOTSTRAP}
    if name:
        try:
            with open(find_profile_path(environment, name), encoding="utf-8") as file:
                found |= read_properties(file.read())
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"there is no profile {name!r} (see `ottla profile list`)") from None
    return found | read_environment(environment)


def find_default_connection(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The default settings without those that are for producers or consumers only, such as auto.offset.reset."""
    found = find_default_settings(environment)
    return {name: value for name, value in found.items() if is_connection_setting(name)}
