"""kafka-python as a program of its own: for each login on standard input, `in` or its error on standard output.

A client of kafka-python that cannot connect leaves sockets open, which end with this process.
"""

import json
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

AT_ONCE = 8
"""A client tries again until its time to find a broker is over."""
ATTEMPTS = 20


class Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def connect(login: dict[str, Any]) -> str:
    settings, attempts = dict(login["settings"]), ATTEMPTS if login["is_good"] else 1
    if "token" in login:
        settings["sasl_oauth_token_provider"] = Token(login["token"])
    outcome = ""
    for _ in range(attempts):
        try:
            client = KafkaAdminClient(**settings, bootstrap_timeout_ms=3000)
            try:
                client.list_topics()
                return "in"
            finally:
                client.close()
        except KafkaError as error:
            outcome = f"{type(error).__name__}: {error}"
    return outcome


def main() -> None:
    logging.disable(logging.CRITICAL)
    logins = json.load(sys.stdin)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(connect, logins))
    print(json.dumps(outcomes), flush=True)
    os._exit(0)  # threads of clients that could not connect may still run


if __name__ == "__main__":
    main()
