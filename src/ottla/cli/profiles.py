"""Profiles: settings of clients that are kept under a name, so that a cluster's address and login are given once.

A profile is a properties file in the user's configuration directory, `profiles/NAME.properties`. Only its owner can
read it, because it has passwords. The file `profile` beside the directory names the profile that is used without
`--profile`.
"""

import os
from collections.abc import Mapping

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.suggestions import suggest
from ottla.client.defaults import PROFILE_NAME, PROFILE_SUFFIX, find_current_profile, find_home
from ottla.client.defaults import PROFILE_VARIABLE as PROFILE_VARIABLE

_OWNER_ONLY = 0o600


class Profiles:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._home = find_home(environment)
        self._directory = os.path.join(self._home, "profiles")
        self._current = os.path.join(self._home, "profile")

    def find_current(self) -> str:
        """The name of the profile that was chosen with `use`; empty if there is none, or if it is gone."""
        return find_current_profile(self._environment)

    def list_names(self) -> list[str]:
        try:
            files = os.listdir(self._directory)
        except OSError:
            return []
        return sorted(name.removesuffix(PROFILE_SUFFIX) for name in files if name.endswith(PROFILE_SUFFIX))

    def read(self, name: str) -> dict[str, str]:
        """CommandError if there is no profile of this name."""
        from ottla.config.properties import read_properties

        check_name(name)
        try:
            with open(self._find_path(name), encoding="utf-8") as file:
                return read_properties(file.read())
        except FileNotFoundError:
            names = self.list_names()
            there = suggest(name, names) or f"; there are: {', '.join(names) or 'none'}"
            raise CommandError(f"there is no profile {name!r}{there}", USAGE_ERROR) from None

    def write(self, name: str, settings: Mapping[str, str]) -> None:
        from ottla.config.properties import format_properties

        check_name(name)
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        write_private(self._find_path(name), format_properties(settings))

    def use(self, name: str) -> None:
        self.read(name)
        write_private(self._current, f"{name}\n")

    def delete(self, name: str) -> None:
        self.read(name)
        os.unlink(self._find_path(name))

    def has(self, name: str) -> bool:
        return name in self.list_names()

    def _find_path(self, name: str) -> str:
        return os.path.join(self._directory, name + PROFILE_SUFFIX)


def check_name(name: str) -> None:
    if not PROFILE_NAME.fullmatch(name):
        raise CommandError(f"{name!r} cannot name a profile: use letters, digits, '.', '_' and '-'", USAGE_ERROR)


def write_private(path: str, content: str | bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    data = content.encode() if isinstance(content, str) else content
    beside = f"{path}.{os.getpid()}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
