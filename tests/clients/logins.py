"""How clients log in at the brokers that the tests of this folder start, if the run asks for it.

`OTTLA_TEST_SECURITY=sasl_ssl` starts them with TLS, logins and ACLs. All tests of the folder run then but those of
`EXCUSED`, as a user with rights to topics, groups and transactional ids, who is not an administrator of anything else.
A test starts its brokers with `run_broker` (or uses the fixture `broker`), and its clients take their settings from the
function here that is named for them. Child processes inherit the logins.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import ottla.testing
from ottla.testing import LocalBroker

SECURITY = os.environ.get("OTTLA_TEST_SECURITY", "")
assert SECURITY in ("", "sasl_plaintext", "sasl_ssl"), f"OTTLA_TEST_SECURITY={SECURITY}: choose sasl_ssl"
USER = "tester"

_FILES = "its brokers are processes that share a data directory with other programs: what counts is in the files"
_RAW = "it also speaks to the broker over a bare socket, without a login"
_PROCESS = "its broker is `ottla up` with its command line, which the page of security covers"
EXCUSED = {
    "test_admin_acls.py": "shows what a broker without an authorizer answers",
    "test_acl_tool.py": "compares with Apache Kafka, whose broker has no listener with security",
    "test_compacted_files.py": _FILES,
    "test_config_kinds.py": "changes settings of brokers, users and quotas, for which one has to be an administrator",
    "test_console_browser.py": "the console has tests of its logins of its own",
    "test_console_clusters.py": "the console has tests of its logins of its own",
    "test_kafka_flags.py": "compares the options of commands with those of Apache Kafka's tools at one broker of each",
    "test_kill.py": _PROCESS,
    "test_moved_files.py": _FILES,
    "test_pages.py": "runs the commands of pages as they stand, and those have no login",
    "test_pipeline_kafka.py": "compares with Apache Kafka, whose broker has no listener with security",
    "test_compacted_topic.py": _RAW,
    "test_coordinator_records.py": _RAW,
    "test_quotas.py": _RAW,
    "test_telemetry.py": _RAW,
    "test_tutorials.py": "runs the commands of pages as they stand, and those have no login",
    "test_read_only.py": _PROCESS,
    "test_signals.py": _PROCESS,
    "test_sink_kills.py": "its Spark jobs have tests with logins in tests/spark",
}
"""File -> why its tests do not run with security."""
RIGHTS = {"topic": ("all",), "group": ("all",), "transactional_id": ("all",)}
"""Kind of resource -> what the user may do with all of them."""
VARIABLE = "OTTLA_TEST_LOGINS"
"""The logins as JSON, for child processes."""

_logins: dict[str, dict[str, str]] = json.loads(os.environ.get(VARIABLE, "{}"))
"""By bootstrap address, with librdkafka's names."""
_plain: dict[str, dict[str, str]] = {}
"""The same for the administrator, with PLAIN."""
_files: dict[str, str] = {}
"""By bootstrap address: the file of a tool's settings."""


def choose_settings() -> dict[str, Any]:
    """The arguments of `ottla.testing.broker` that switch security on, if the run asks for it."""
    return {"security": SECURITY, "acls": True} if SECURITY else {}


@contextmanager
def run_broker(*, process: bool = False, **settings: Any) -> Iterator[LocalBroker]:
    with ottla.testing.broker(process=process, **settings, **choose_settings()) as broker:
        prepare(broker)
        yield broker


def prepare(broker: LocalBroker) -> None:
    """Create the user by whom the tests use a broker with security."""
    if broker.security is None:
        return
    from ottla.cli.acl import Acl, create  # not needed by the children, which have to start quickly
    from ottla.client.client import Client
    from ottla.config.properties import format_properties

    _logins[broker.bootstrap] = broker.create_user(USER)
    _plain[broker.bootstrap] = {**broker.client_settings, "sasl.mechanism": "PLAIN"}
    os.environ[VARIABLE] = json.dumps(_logins)
    principal = broker.security.name_principal(USER)
    rights = [
        Acl(principal, "allow", operation, kind, "literal", "*", "*")
        for kind, operations in RIGHTS.items()
        for operation in operations
    ]
    with closing(Client(broker.client_settings)) as client:
        create(client, rights)
    descriptor, _files[broker.bootstrap] = tempfile.mkstemp(".properties", dir=broker.directory)
    with os.fdopen(descriptor, "w") as file:
        file.write(format_properties(broker.java_settings))


def librdkafka(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, **_logins.get(bootstrap, {})}


def ours(bootstrap: str) -> dict[str, str]:
    """For `ottla.read`: the settings beside the address."""
    return _logins.get(bootstrap, {})


def variables(bootstrap: str) -> dict[str, str]:
    """The environment of the command line."""
    login = {f"OTTLA_CLIENT_{name.replace('.', '_').upper()}": value for name, value in ours(bootstrap).items()}
    return {"OTTLA_BOOTSTRAP": bootstrap, **login}


def tool(bootstrap: str) -> tuple[str, ...]:
    """The words of Apache Kafka's tools, which log in as the administrator."""
    login = ("--command-config", _files[bootstrap]) if bootstrap in _files else ()
    return ("--bootstrap-server", bootstrap, *login)


def java_lines(bootstrap: str) -> list[str]:
    """The lines of a properties file of the Java client."""
    return Path(_files[bootstrap]).read_text().splitlines() if bootstrap in _files else []


def kcat(bootstrap: str) -> list[str]:
    """As the administrator, with PLAIN: librdkafka before 2.6.1, which Debian's kcat has, cannot log in with SCRAM."""
    login = _plain.get(bootstrap, {})
    return ["-b", bootstrap, *(word for name, value in login.items() for word in ("-X", f"{name}={value}"))]


def franz(bootstrap: str) -> dict[str, Any]:
    """The login of an order of the Go client."""
    login = ours(bootstrap)
    if not login:
        return {}
    return {
        "Login": {
            "Address": bootstrap,
            "Mechanism": login["sasl.mechanism"],
            "User": login["sasl.username"],
            "Password": login["sasl.password"],
            "Authority": login.get("ssl.ca.location", ""),
        }
    }


def kafka_python(bootstrap: str) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap_servers": bootstrap}
    if login := _logins.get(bootstrap):
        found |= _name_for_python(login)
        if "ssl.ca.location" in login:
            found["ssl_cafile"] = login["ssl.ca.location"]
    return found


def aiokafka(bootstrap: str) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap_servers": bootstrap}
    if login := _logins.get(bootstrap):
        found |= _name_for_python(login)
        if "ssl.ca.location" in login:
            from aiokafka.helpers import create_ssl_context

            found["ssl_context"] = create_ssl_context(cafile=login["ssl.ca.location"])
    return found


def _name_for_python(login: dict[str, str]) -> dict[str, Any]:
    """The login with the names that both Python clients have."""
    return {
        "security_protocol": login["security.protocol"].upper(),
        "sasl_mechanism": login["sasl.mechanism"],
        "sasl_plain_username": login["sasl.username"],
        "sasl_plain_password": login["sasl.password"],
    }
