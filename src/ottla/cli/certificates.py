"""`ottla certificates DIRECTORY`: a certificate authority, and certificates for brokers and clients.

For a laptop or a test cluster: the authority's key lies beside everything else. What is there already is kept, so the
command can be run again to add a broker or a client. Files with a key can be read by their owner only:

    ca.pem, ca-key.pem, truststore.p12      the authority
    NAME.pem, NAME.p12                      key and certificate of a broker or client
    NAME.properties                         the settings that use them, for a broker or for Kafka's clients
    store-password                          the password of all PKCS12 files
"""

import argparse
import os
import secrets
import socket
from datetime import UTC, datetime
from typing import NamedTuple

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import int_between
from ottla.cli.output import add_format_argument, show_rows
from ottla.cli.profiles import write_private

DIRECTORY = "certificates"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
DAYS_MAX = 36_500
_RESERVED = ("ca", "ca-key", "truststore", "store-password")
_PUBLIC = 0o644


class Row(NamedTuple):
    name: str
    kind: str
    file: str
    hosts: tuple[str, ...]
    expires: str
    state: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", default=DIRECTORY, help=f"where the files are (default: {DIRECTORY})")
    parser.add_argument(
        "--broker",
        action="append",
        default=[],
        metavar="NAME",
        help="the name of a broker's certificate; may be repeated (default: broker)",
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="a host name or address of the brokers; may be repeated (default: those of this machine)",
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME",
        help="the name of a client's certificate, CN=NAME for the broker; may be repeated (default: client)",
    )
    parser.add_argument("--days", type=int_between(1, DAYS_MAX), default=825, help="how long they are valid (825)")
    parser.add_argument("--renew", action="store_true", help="make new ones for names that have a certificate already")
    parser.add_argument(
        "--replace-authority",
        action="store_true",
        help="make a new authority; certificates of the old one are then refused everywhere",
    )
    add_format_argument(parser)


def run(options: argparse.Namespace) -> int:
    from ottla.security.certificates import BadCertificate

    brokers, clients = options.broker or ["broker"], options.client or ["client"]
    names = [*brokers, *clients]
    for name in names:
        if name in _RESERVED or name.startswith(".") or "/" in name or names.count(name) > 1:
            raise CommandError(f"{name!r} cannot name a certificate: it is reserved, or given twice", USAGE_ERROR)
    folder = Folder(options.directory)
    hosts = tuple(options.host) or (*LOCAL_HOSTS, socket.gethostname())
    try:
        folder.find_authority(replace=options.replace_authority)
        for name in brokers:
            folder.make(name, "broker", hosts, options)
        for name in clients:
            folder.make(name, "client", (), options)
    except BadCertificate as error:
        raise CommandError(str(error), USAGE_ERROR) from None
    show_rows(options.format, Row._fields, folder.rows)
    return 0


class Folder:
    """The directory of an authority."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.abspath(directory)
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._now = datetime.now(UTC)
        self.rows: list[Row] = []

    def find_authority(self, *, replace: bool) -> None:
        """Takes the authority that is there, or makes one."""
        from ottla.security.certificates import AUTHORITY_DAYS, make_authority, make_trust_store, read_authority

        certificate, key = self._path("ca.pem"), self._path("ca-key.pem")
        there = [path for path in (certificate, key) if os.path.exists(path)]
        if there and not replace:
            if len(there) == 1:
                raise CommandError(f"{there[0]} is there without its other half; --replace-authority makes a new one")
            self._authority = read_authority(_read(certificate), _read(key))
            state = "kept"
        else:
            self._authority = make_authority("Ottla test authority", self._now, AUTHORITY_DAYS)
            write_private(key, self._authority.key)
            self._write_public("ca.pem", self._authority.certificate)
            state = "made"
        self._password = self._find_password()
        if state == "made" or not os.path.exists(self._path("truststore.p12")):
            self._write_public("truststore.p12", make_trust_store(self._authority.certificate, self._password))
        self._note("ca", "authority", "ca.pem", (), self._authority.certificate, state)
        self._is_new = state == "made"

    def make(self, name: str, kind: str, hosts: tuple[str, ...], options: argparse.Namespace) -> None:
        """Makes a certificate unless there is one already that this authority has signed."""
        from ottla.security.certificates import issue

        path = self._path(f"{name}.pem")
        if os.path.exists(path) and not (options.renew or self._is_new):
            self._note(name, kind, f"{name}.pem", hosts, _read(path), "kept")
            return
        state = "renewed" if os.path.exists(path) else "made"
        is_server = kind == "broker"
        issued = issue(self._authority, name, self._now, hosts=hosts, days=options.days, is_server=is_server)
        write_private(path, issued.pem)
        store = issued.make_pkcs12(name, self._password, self._authority.certificate)
        write_private(self._path(f"{name}.p12"), store)
        settings = {
            **({"security.protocol": "SSL"} if kind == "client" else {}),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": path,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._path("ca.pem"),
        }
        self._write_settings(f"{name}.properties", settings)
        self._note(name, kind, f"{name}.pem", hosts, issued.certificate, state)

    def _find_password(self) -> str:
        path = self._path("store-password")
        if not os.path.exists(path):
            write_private(path, secrets.token_urlsafe(18) + "\n")
        return _read(path).strip()

    def _write_settings(self, name: str, settings: dict[str, str]) -> None:
        from ottla.config.properties import format_properties

        write_private(self._path(name), format_properties(settings))

    def _write_public(self, name: str, content: str | bytes) -> None:
        write_private(self._path(name), content)
        os.chmod(self._path(name), _PUBLIC)

    def _note(self, name: str, kind: str, file: str, hosts: tuple[str, ...], certificate: str, state: str) -> None:
        from ottla.security.certificates import find_expiry

        expires = find_expiry(certificate).date().isoformat()
        shown = () if state == "kept" else hosts
        self.rows.append(Row(name, kind, os.path.join(self._directory, file), shown, expires, state))

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()
