"""Config providers: values that stand in files or environment variables instead of in a configuration.

    ${file:/etc/secrets.properties:password}    the key of a .properties file
    ${directory:/etc/secrets:password}          the whole content of a file in a directory
    ${env:PASSWORD}                             an environment variable

The worker's properties name them: `config.providers=file,env`, `config.providers.file.class=...` with Kafka's class
names, and `config.providers.file.param.allowed.paths` or `config.providers.env.param.allowlist.pattern` to bound them.
A reference to a provider of another name stays as it is, as in Kafka; one that a provider cannot resolve is an error.
Whatever a provider returns counts as a secret.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.config.properties import read_properties
from ottla.config.settings import ConfigError
from ottla.connect.errors import BadConfig

Provide = Callable[[str, str], str]
"""The value of a path and a key. ValueError says why there is none."""

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*?)\}")
_PACKAGE: Final = "org.apache.kafka.common.config.provider."


@dataclass(frozen=True)
class Resolved:
    config: dict[str, str | None]
    secrets: frozenset[str]
    """Every value that a provider returned."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with the references of a setting, by its name."""


class Providers:
    """The config providers of a worker."""

    def __init__(self, worker: Mapping[str, str]) -> None:
        """BadConfig if the worker's properties name a provider that does not exist, or bound one wrongly."""
        self._providers: dict[str, Provide] = {}
        for name in (worker.get("config.providers") or "").split(","):
            if name := name.strip():
                self._providers[name] = _make_provider(name, worker)

    def resolve(self, config: Mapping[str, str | None]) -> Resolved:
        """Replace all references, and say which cannot be."""
        resolved: dict[str, str | None] = {}
        secrets: set[str] = set()
        errors: dict[str, str] = {}

        def replace(match: re.Match[str]) -> str:
            provide = self._providers.get(match[1])
            if provide is None:
                return match[0]
            value = provide(match[2] or "", match[3])
            secrets.add(value)
            return value

        for name, text in config.items():
            resolved[name] = text
            try:
                if text is not None and self._providers:
                    resolved[name] = _REFERENCE.sub(replace, text)
            except ValueError as error:
                errors[name] = f"Invalid value {text} for configuration {name}: {error}"
        return Resolved(resolved, frozenset(secrets), errors)

    def resolve_or_fail(self, config: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
        """The configuration without references, and the secrets in it. BadConfig if a reference cannot be resolved."""
        resolved = self.resolve(config)
        if resolved.errors:
            raise BadConfig("\n".join(resolved.errors.values()))
        return {name: text for name, text in resolved.config.items() if text is not None}, resolved.secrets


def _make_provider(name: str, worker: Mapping[str, str]) -> Provide:
    prefix = f"config.providers.{name}."
    class_name = worker.get(f"{prefix}class", "").strip()
    match class_name.removeprefix(_PACKAGE):
        case "FileConfigProvider":
            allowed = _read_allowed_paths(name, worker)
            return lambda path, key: _read_property(path, key, allowed)
        case "DirectoryConfigProvider":
            allowed = _read_allowed_paths(name, worker)
            return lambda path, key: _read_file(path, key, allowed)
        case "EnvVarConfigProvider":
            pattern = worker.get(f"{prefix}param.allowlist.pattern", ".*")
            try:
                variables = re.compile(pattern)
            except re.error as error:
                raise BadConfig(f"{prefix}param.allowlist.pattern={pattern}: {error}") from None
            return lambda path, key: _read_variable(path, key, variables)
        case "":
            raise BadConfig(f"config.providers names {name}, but there is no {prefix}class")
        case _:
            raise BadConfig(
                f"{prefix}class={class_name}: there is no such config provider; there are FileConfigProvider,"
                " DirectoryConfigProvider and EnvVarConfigProvider"
            )


def _read_allowed_paths(name: str, worker: Mapping[str, str]) -> tuple[Path, ...]:
    """Empty: every path is allowed."""
    given = worker.get(f"config.providers.{name}.param.allowed.paths") or ""
    allowed = []
    for text in filter(None, map(str.strip, given.split(","))):
        if not os.path.isabs(text):
            raise BadConfig(f"config.providers.{name}.param.allowed.paths: Path {text} is not absolute")
        if not os.path.exists(text):
            raise BadConfig(f"config.providers.{name}.param.allowed.paths: Path {text} does not exist")
        allowed.append(Path(os.path.realpath(text)))
    return tuple(allowed)


def _find_path(path: str, allowed: tuple[Path, ...]) -> Path:
    """Links count as what they lead to, so none leads out of the allowed paths."""
    if not path:
        raise ValueError("the reference has no path")
    real = Path(os.path.realpath(path))
    if allowed and not any(real.is_relative_to(each) for each in allowed):
        raise ValueError(f"The path {path} is not allowed to be accessed")
    return real


def _read_property(path: str, key: str, allowed: tuple[Path, ...]) -> str:
    found = _find_path(path, allowed)
    try:
        properties = read_properties(found.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError):
        raise ValueError(f"Could not read properties from file {path}") from None
    if key not in properties:
        raise ValueError(f"file {path} has no key {key}")
    return properties[key]


def _read_file(path: str, key: str, allowed: tuple[Path, ...]) -> str:
    directory = _find_path(path, allowed)
    if not directory.is_dir():
        raise ValueError(f"The path {path} is not a directory")
    if key != os.path.basename(key) or key in ("", ".", ".."):
        raise ValueError(f"{key} is not the name of a file in {path}")
    found = _find_path(str(directory / key), allowed)
    try:
        return found.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"Could not read file {key} in {path}") from None


def _read_variable(path: str, key: str, variables: re.Pattern[str]) -> str:
    if path:
        raise ValueError(f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'")
    if not variables.fullmatch(key) or key not in os.environ:
        raise ValueError(f"there is no environment variable {key}, or the provider's allowlist.pattern excludes it")
    return os.environ[key]
