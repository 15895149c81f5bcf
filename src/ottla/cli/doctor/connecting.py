"""Checks of the way to the brokers: settings, names, ports, TLS, logins, and the addresses that brokers advertise."""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from ottla.cli.client_settings import BOOTSTRAP, SETTING_NAMES, is_registry_setting, make_library_settings
from ottla.cli.command_error import CommandError
from ottla.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client

CONNECT_S = 5.0
ZOOKEEPER_PORT = 2181
RUOK_ANSWER_BYTES = 1_000

FIXES = (
    ("not known", "check the spelling, DNS or /etc/hosts"),
    ("temporary failure in name resolution", "check the spelling, DNS or /etc/hosts"),
    ("refused", "start a broker there (ottla up), or give its address with --bootstrap"),
    ("no answer in time", "a firewall may drop the packets, or the host is down: try it from the broker's own machine"),
    ("no route", "the network does not reach that address: check the address, VPN and firewall"),
    ("there is no tls at this port", "set security.protocol to plaintext or sasl_plaintext, or use the port of TLS"),
    ("expect tls", "set security.protocol to ssl or sasl_ssl, or to sasl_plaintext if the listener wants only a login"),
    ("expects tls", "set security.protocol to ssl or sasl_ssl, and ssl.ca.location to the authority's certificate"),
    ("has expired", "renew the broker's certificate (ottla certificates), and check this machine's clock"),
    ("not yet valid", "check the clocks of this machine and of the one that made the certificate"),
    ("self-signed", "set ssl.ca.location to the authority that has signed the broker's certificate"),
    ("unable to get", "set ssl.ca.location to the authority that has signed the broker's certificate"),
    ("hostname mismatch", "use a name that the certificate has, or make one for this name (ottla certificates)"),
    ("ip address mismatch", "use a name that the certificate has, or make one for this address (ottla certificates)"),
    (
        "certificate required",
        "the broker wants a client's certificate: set ssl.certificate.location and ssl.key.location",
    ),
    ("unknown ca", "the broker does not trust this client's certificate: have its authority sign it"),
    ("does not offer", "set sasl.mechanism to one that the broker offers"),
    ("not that of a kafka broker", "another program listens there: check the port"),
    ("connection was closed", "does the listener want a login? Set security.protocol to sasl_plaintext or sasl_ssl"),
    ("authentication failed", "check sasl.username and sasl.password; `ottla user list` shows who can log in"),
    ("invalid credentials", "check sasl.username and sasl.password; `ottla user list` shows who can log in"),
)
"""What to do, by a part of the message."""


def find_fix(message: str) -> str:
    text = message.lower()
    return next((fix for part, fix in FIXES if part in text), "is that the address of a Kafka broker?")


def check_settings(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Settings that are not valid, and names that no client knows."""
    from ottla.client.settings import ClientSettings

    try:
        ClientSettings.of(settings)
        make_library_settings(settings)
    except (ValueError, CommandError) as error:
        yield Finding(PROBLEM, "settings", str(error), "correct it in the profile, file or variable that it comes from")
        return
    unknown = [name for name in settings if not _is_known(name, settings[name])]
    for name in unknown:
        near = suggest(name, SETTING_NAMES).removeprefix("; ")
        fix = near or "remove it if it is meant for another program"
        yield Finding(PROBLEM if near else NOTE, "client settings", f"no client knows {name!r}: it is ignored", fix)
    if not unknown:
        yield Finding(OK, "client settings", f"{len(settings)} known")


def _is_known(name: str, value: str) -> bool:
    if name in SETTING_NAMES or is_registry_setting(name):
        return True
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from ottla.client.security import is_java_only

    if is_java_only(name) or name.endswith(("serializer", "deserializer")):
        return True
    try:
        AdminClient({BOOTSTRAP: "127.0.0.1:1", "log_level": 0, name: value})
    except KafkaException as error:
        return "No such configuration property" not in error.args[0].str()
    return True


def check_connections(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Each bootstrap address, and each address that brokers advertise to clients of the first one that answers."""
    from ottla.client.connection import Unreachable
    from ottla.client.settings import ClientSettings
    from ottla.wire.messages.describe_cluster import DescribeClusterRequest

    try:
        given = ClientSettings.of(settings)
    except ValueError:
        return  # check_settings has said so
    advertised: dict[int, tuple[str, int]] = {}
    reached: set[tuple[str, int]] = set()
    troubles = []
    for host, port in given.bootstrap:
        try:
            with closing(_make_client(settings, host, port)) as client:
                answer = client.connect_any().ask(DescribeClusterRequest(endpoint_type=1))
        except Unreachable as error:
            troubles.append(explain_failure(str(error)))
            continue
        reached.add((host, port))
        advertised = advertised or {each.broker_id: (each.host, each.port) for each in answer.brokers}
        yield Finding(OK, "connection", f"{host}:{port} answers")
    for message, fix in troubles:
        yield Finding(NOTE if reached else PROBLEM, "connection", message, fix)
    for broker, (host, port) in advertised.items():
        if (host, port) in reached:
            continue
        try:
            with closing(_make_client(settings, host, port)) as client:
                client.connect_any()
        except Unreachable as error:
            yield _explain_advertised(broker, host, port, str(error))
        else:
            yield from _check_loopback(broker, host, port, given.bootstrap)


def _make_client(settings: Mapping[str, str], host: str, port: int) -> "Client":
    from ottla.client.client import Client

    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Client({**settings, BOOTSTRAP: address, "request.timeout.ms": str(int(CONNECT_S * 1000))})


def explain_failure(message: str) -> tuple[str, str]:
    """The message and how to mend it. A refused connection is said in words that need no knowledge of sockets."""
    address, _, reason = message.partition(": ")
    if "refused" in reason:
        return f"nothing listens at {address} (connection refused)", find_fix(message)
    return message, find_fix(message)


def _explain_advertised(broker: int, host: str, port: int, message: str) -> Finding:
    text = f"broker {broker} tells clients to connect to {host}:{port}, which this machine cannot: {message}"
    fix = f"set advertised.listeners of broker {broker} to an address that clients reach, or let {host!r} resolve here"
    return Finding(PROBLEM, "advertised listeners", text, fix)


def _check_loopback(broker: int, host: str, port: int, bootstrap: tuple[tuple[str, int], ...]) -> Iterator[Finding]:
    if _is_loopback(host) and not any(_is_loopback(each) for each, _ in bootstrap):
        text = f"broker {broker} tells clients to connect to {host}:{port}, so other machines connect to themselves"
        yield Finding(PROBLEM, "advertised listeners", text, f"set advertised.listeners of broker {broker}")
    else:
        yield Finding(OK, "advertised listeners", f"broker {broker} answers at {host}:{port}")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def check_port(port: int) -> Iterator[Finding]:
    """Whether a broker could listen on the port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EACCES:
                text, fix = f"{port} may be used by root only", "choose a port above 1023 with `ottla up --port`"
            else:
                text, fix = f"{port} is in use", f"`ss -ltnp sport = :{port}` names the program; or `ottla up --port`"
            yield Finding(PROBLEM, "port", text, fix)
            return
    yield Finding(OK, "port", f"{port} is free")


def check_zookeeper(text: str) -> Iterator[Finding]:
    """Whether ZooKeeper's servers answer. A path after the addresses (/ottla) is left out."""
    for address in filter(None, text.partition("/")[0].split(",")):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal():
            host, port = address.strip(), str(ZOOKEEPER_PORT)
        try:
            with socket.create_connection((host, int(port)), CONNECT_S) as connection:
                connection.sendall(b"srvr")
                answer = connection.recv(RUOK_ANSWER_BYTES)
        except OSError as error:
            fix = "start it (ottla cluster up has one for a laptop), or correct zookeeper.connect"
            yield Finding(PROBLEM, "zookeeper", f"{host}:{port}: {error.strerror or error}", fix)
            continue
        if b"not currently serving" in answer:
            fix = "more than half of its servers must run and reach each other"
            yield Finding(PROBLEM, "zookeeper", f"{host}:{port} runs, but has no quorum", fix)
        else:
            yield Finding(OK, "zookeeper", f"{host}:{port} answers")
