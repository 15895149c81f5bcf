"""`ottla console`: the web console of a cluster, in a browser."""

import argparse
import os
import sys
from collections.abc import Mapping

from ottla.cli.client_settings import add_client_arguments, is_registry_setting, read_client_settings
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import int_between

PORT = 9280
PORT_MAX = 65_535
CHECK_MS = 5_000
TOKEN_VARIABLE = "OTTLA_CONSOLE_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument(
        "--port", type=int_between(0, PORT_MAX), default=PORT, help=f"port to listen on; 0 takes a free one ({PORT})"
    )
    parser.add_argument("--host", default="localhost", help="address to listen on (default: localhost)")
    parser.add_argument(
        "--token",
        default=os.environ.get(TOKEN_VARIABLE, ""),
        help=f"token or password that is asked for (default: ${TOKEN_VARIABLE}; otherwise none on localhost, and a new "
        "one elsewhere)",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name by which browsers may call the console; may be repeated",
    )
    parser.add_argument(
        "--no-login", action="store_true", help="ask nobody for a token, because something in front of the console does"
    )
    parser.add_argument("--read-only", action="store_true", help="refuse everything that changes something")
    parser.add_argument("--root-path", default="", metavar="/PATH", help="the path below which a proxy serves it")
    parser.add_argument(
        "--schema-registry",
        "--registry",
        default="",
        metavar="URL",
        help="decode Avro, Protobuf and JSON with the schemas from there",
    )
    parser.add_argument("--connect", default="", metavar="URL", help="a worker of Kafka Connect, to show connectors")
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    from ottla.console.console import Options
    from ottla.console.serving import Listening, serve

    settings = read_client_settings(options).settings
    registry = {name: value for name, value in settings.items() if is_registry_setting(name)}
    if options.schema_registry:
        registry["schema.registry.url"] = options.schema_registry
    root_path = options.root_path.rstrip("/")
    if root_path and not root_path.startswith("/"):
        raise CommandError(f"--root-path: {options.root_path!r} does not begin with /", USAGE_ERROR)
    chosen = Options(
        {name: value for name, value in settings.items() if not is_registry_setting(name)},
        options.read_only,
        options.connect,
        registry,
        root_path,
    )
    listening = Listening(options.host, options.port, options.token, options.allow_host, options.no_login)
    _check_cluster(chosen.settings)
    if options.with_parent:
        _end_with_parent()
    try:
        serve(chosen, listening, _announce)
    except ValueError as error:
        raise CommandError(str(error), USAGE_ERROR) from None
    except SystemExit:  # uvicorn has logged why it cannot listen
        raise CommandError(f"cannot listen on {options.host}:{options.port}; choose another --port") from None
    return 0


def _check_cluster(settings: Mapping[str, str]) -> None:
    """Raises CommandError unless a broker answers: a wrong address is noticed before a browser shows it."""
    from ottla.client.client import Client
    from ottla.client.connection import NotAuthenticated, NotListening, Unreachable

    try:
        client = Client({"request.timeout.ms": str(CHECK_MS), **settings})
    except ValueError as error:
        raise CommandError(str(error), USAGE_ERROR) from None
    try:
        client.connect_any()
    except NotAuthenticated as error:
        raise CommandError(f"cannot connect to {error}") from None
    except NotListening as error:
        raise CommandError(f"cannot connect to {error}. Is a broker running there? (ottla up)") from None
    except Unreachable as error:
        raise CommandError(f"cannot connect to {error}. Is that the address of a Kafka broker?") from None
    finally:
        client.close()


def _announce(address: str, token: str) -> None:
    line = f"console on {address}"
    if token and not os.environ.get(TOKEN_VARIABLE):
        line += f"login?token={token}" if sys.stdout.isatty() else f" (token {token})"
    print(line, flush=True)


def _end_with_parent() -> None:
    """End when standard input ends: it is a pipe that the broker of `ottla up --console` holds open while it lives."""
    import signal
    from threading import Thread

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=wait, daemon=True).start()
