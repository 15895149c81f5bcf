"""How clients log in at the broker that the tests of this folder share, if it asks them to.

`OTTLA_TEST_SECURITY=sasl_ssl` starts it with TLS, logins and ACLs. The tests of `LOGGING_IN` run then, as a user with
rights to topics, groups and transactional ids, who is not an administrator of anything else.
"""

import os
from contextlib import closing
from typing import Any

from aiokafka.helpers import create_ssl_context

from ottla.cli.acl import Acl, create
from ottla.client.client import Client
from ottla.testing import LocalBroker

SECURITY = os.environ.get("OTTLA_TEST_SECURITY", "")
assert SECURITY in ("", "sasl_plaintext", "sasl_ssl"), f"OTTLA_TEST_SECURITY={SECURITY}: choose sasl_ssl"
LOGGING_IN = ("test_admin.py", "test_admin_settings.py", "test_round_trips.py")
USER = "tester"

_logins: dict[str, dict[str, str]] = {}
"""By bootstrap address, with librdkafka's names."""


def choose_settings() -> dict[str, Any]:
    """The arguments of `ottla.testing.broker` that switch security on, if the run asks for it."""
    return {"security": SECURITY, "acls": True} if SECURITY else {}


def prepare(broker: LocalBroker) -> None:
    """Create the user by whom the tests use a broker with security."""
    if broker.security is None:
        return
    _logins[broker.bootstrap] = broker.create_user(USER)
    principal = broker.security.name_principal(USER)
    rights = [Acl(principal, "allow", "all", kind, "literal", "*", "*") for kind in ("topic", "group")]
    with closing(Client(broker.client_settings)) as client:
        create(client, rights)


def librdkafka(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, **_logins.get(bootstrap, {})}


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
