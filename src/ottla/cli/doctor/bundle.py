"""The archive for a bug report: what the doctor found, versions, settings, the cluster, ends of logs. No secrets.

Every file goes through one `Redactor`, which hides the values of secret settings wherever they stand. Records are never
part of the bundle.
"""

import argparse
import json
import os
import platform
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib import metadata
from typing import Any

from ottla import __version__
from ottla.cli.command_error import CommandError
from ottla.cli.doctor.finding import Finding
from ottla.cli.doctor.redacting import Redactor, find_secrets
from ottla.cli.profiles import Profiles, write_private
from ottla.client.security import hide_secrets

LOG_BYTES = 1 << 20
API_TIMEOUT_MS = 10_000

_VARIABLES = ("OTTLA_", "KAFKA_", "SPARK_", "JAVA_HOME", "PYTHONPATH", "LANG", "LC_")
_BROKER = 4


def write_bundle(options: argparse.Namespace, settings: Mapping[str, str], findings: Sequence[Finding]) -> None:
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}
    profiles = Profiles(os.environ)
    kept = {name: profiles.read(name) for name in profiles.list_names()}
    secrets = [secret for each in (settings, environment, *kept.values()) for secret in find_secrets(_lower(each))]
    redactor = Redactor(secrets)
    files: dict[str, Any] = {
        "doctor.json": [finding._asdict() for finding in findings],
        "versions.json": describe_versions(),
        "client-settings.json": hide_secrets(settings),
        "environment.json": _hide_variables(environment),
        "profiles.json": {name: hide_secrets(each) for name, each in kept.items()},
    }
    if not options.offline:
        files |= dict(_describe_cluster(settings))
    path = options.bundle
    try:
        with _open_private(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, document in files.items():
                archive.writestr(name, redactor.redact(json.dumps(document, indent=2, default=str)))
            for number, log in enumerate(options.logs, start=1):
                archive.writestr(f"logs/{number}-{os.path.basename(log)}", redactor.redact(_read_end(log)))
    except OSError as error:
        named = str(error.filename or path)
        place = path if named.startswith(path) else named  # the bundle is written beside its place first
        raise CommandError(f"{place}: {error.strerror or error}") from None


def _open_private(path: str) -> Any:
    write_private(path, b"")
    return open(path, "wb")


def describe_versions() -> dict[str, Any]:
    packages = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    return {
        "ottla": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": dict(sorted(packages.items(), key=lambda each: str(each[0]).lower())),
    }


def _lower(settings: Mapping[str, str]) -> dict[str, str]:
    """Names of variables as those of settings: OTTLA_CLIENT_SASL_PASSWORD is one of a password too."""
    return {name.lower().replace("_", "."): value for name, value in settings.items()}


def _hide_variables(environment: Mapping[str, str]) -> dict[str, str]:
    hidden = hide_secrets(_lower(environment))
    return {name: hidden[name.lower().replace("_", ".")] for name in environment}


def _read_end(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - LOG_BYTES, 0))
        return file.read().decode(errors="replace")


def _describe_cluster(settings: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Brokers, partitions, and the settings of each broker. A cluster that does not answer is no reason to fail."""
    from ottla.cli.cluster.overview import observe
    from ottla.client.client import Client

    try:
        with closing(Client({**settings, "default.api.timeout.ms": str(API_TIMEOUT_MS)})) as client:
            overview = observe(client)
            yield (
                "cluster.json",
                {
                    "cluster": overview.cluster_id,
                    "brokers": [each._asdict() for each in overview.brokers],
                    "partitions": [{**each._asdict(), "where": str(each.where)} for each in overview.partitions],
                    "reassignments": [{**each._asdict(), "where": str(each.where)} for each in overview.reassignments],
                },
            )
            for broker in overview.alive():
                yield f"broker-{broker.id}.json", _describe_broker(client, broker.id)
    except Exception as error:  # whatever fails: the bundle says it, and has the rest
        yield "cluster-error.json", str(error)


def _describe_broker(client: Any, broker: int) -> dict[str, Any]:
    from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    asked = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(broker), configuration_keys=None)
    (result,) = client.ask_broker(broker, DescribeConfigsRequest(resources=[asked])).results
    values = {each.name: "(secret)" if each.is_sensitive else each.value or "" for each in result.configs}
    return hide_secrets(values)
