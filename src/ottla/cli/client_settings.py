"""The settings of a command's clients, from its options, the environment and profiles. The strongest last:

    the default address    the profile of `ottla profile use`, or of $OTTLA_PROFILE
    $OTTLA_BOOTSTRAP, $OTTLA_CLIENT_...    --profile NAME    --command-config FILE    --bootstrap    -X KEY=VALUE

Names are those of the Java client or of librdkafka. Both mean the same; `ottla.client.security` translates them. The
names of variables are those of settings: OTTLA_CLIENT_SASL_PASSWORD is sasl.password.
"""

import argparse
import os
from collections.abc import Mapping
from typing import NamedTuple

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.pairs import parse_pairs
from ottla.cli.profiles import Profiles
from ottla.client.defaults import (
    BOOTSTRAP as BOOTSTRAP,
)
from ottla.client.defaults import (
    BOOTSTRAP_VARIABLE,
    PROFILE_VARIABLE,
    read_environment,
)
from ottla.client.defaults import (
    DEFAULT_BOOTSTRAP as DEFAULT_BOOTSTRAP,
)

SETTING_NAMES = (
    *(BOOTSTRAP, "client.id", "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username"),
    *("sasl.password", "sasl.jaas.config", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
    *("ssl.key.password", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"),
    *("ssl.keystore.location", "ssl.keystore.password", "ssl.endpoint.identification.algorithm", "ssl.ca.pem"),
    *("request.timeout.ms", "default.api.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms", "group.id"),
    *("auto.offset.reset", "enable.auto.commit", "enable.idempotence", "compression.type", "linger.ms", "acks"),
    *("session.timeout.ms", "max.poll.interval.ms", "isolation.level", "transactional.id", "schema.registry.url"),
    *("basic.auth.user.info", "bearer.auth.token", "check.crcs", "client.rack", "metadata.max.age.ms"),
)
"""Names that people set. Others are asked of librdkafka."""

DEFAULT_PORT = 9092

_SECURE = ("security.", "ssl.", "sasl.")
_OF_REGISTRY = ("schema.registry.", "basic.auth.", "bearer.auth.")


class GivenSettings(NamedTuple):
    settings: dict[str, str]
    """By the names that the user gave."""
    optional: frozenset[str]
    """Names from files and profiles. Those that a client does not know are ignored, as every client of Kafka does."""


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"where to find the cluster (default: ${BOOTSTRAP_VARIABLE}, the profile's, or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "-X",
        action="append",
        default=[],
        dest="client_settings",
        metavar="KEY=VALUE",
        help="a setting of Kafka's clients, for example security.protocol=SSL; may be repeated",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties file with settings of Kafka's clients, such as those of security",
    )
    parser.add_argument("--profile", metavar="NAME", help="the settings that `ottla profile create` has kept")


def read_client_settings(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> GivenSettings:
    """CommandError if a file or a profile is missing or cannot be read."""
    profiles = Profiles(environment)
    chosen = getattr(options, "profile", None)
    default = "" if chosen is not None else environment.get(PROFILE_VARIABLE) or profiles.find_current()
    found = {BOOTSTRAP: DEFAULT_BOOTSTRAP, **(profiles.read(default) if default else {})}
    found |= read_environment(environment)
    if chosen is not None:
        found |= profiles.read(chosen)
    file = getattr(options, "command_config", None)
    if file is not None:
        found |= read_properties_file(file)
    optional = frozenset(found)
    if options.bootstrap is not None:
        found[BOOTSTRAP] = options.bootstrap
    direct = parse_pairs(options.client_settings, "-X")
    found[BOOTSTRAP] = ",".join(map(_add_port, found[BOOTSTRAP].split(",")))
    return GivenSettings(found | direct, optional - direct.keys())


def _add_port(address: str) -> str:
    """HOST alone means Kafka's port there, as it does for librdkafka."""
    return f"{address.strip()}:{DEFAULT_PORT}" if address.strip() and ":" not in address else address


def read_properties_file(path: str) -> dict[str, str]:
    from ottla.config.properties import read_properties
    from ottla.config.settings import ConfigError

    try:
        with open(path, encoding="utf-8") as file:
            return {name: value.strip() for name, value in read_properties(file.read()).items()}
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}", USAGE_ERROR) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: not UTF-8 text", USAGE_ERROR) from None
    except ConfigError as error:
        raise CommandError(f"{path}: {error}", USAGE_ERROR) from None


def is_registry_setting(name: str) -> bool:
    """Whether it is a setting of a schema registry's client, which may stand beside those of Kafka's clients."""
    return name.startswith(_OF_REGISTRY)


def make_library_settings(given: Mapping[str, str]) -> dict[str, object]:
    """The settings as confluent-kafka takes them. CommandError if one of security is not valid."""
    settings = {name: value for name, value in given.items() if not is_registry_setting(name)}
    if not any(name.startswith(_SECURE) for name in settings):
        return {**settings}  # without the modules of TLS, which take longer to import than most commands run
    from ottla.client.security import make_librdkafka_settings

    try:
        return dict(make_librdkafka_settings(settings))
    except ValueError as error:
        raise CommandError(str(error), USAGE_ERROR) from None
