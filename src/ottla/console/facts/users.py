"""Users who log in with SCRAM: who there are, new passwords, and their end."""

from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.scram_users import MECHANISMS, delete_mechanism
from ottla.console.facts.settings import raise_for_code
from ottla.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

_NAMES = {number: name for name, (number, _) in MECHANISMS.items()}


class User(NamedTuple):
    name: str
    credentials: list[tuple[str, int]]
    """Mechanism and iterations."""

    @property
    def mechanisms(self) -> list[str]:
        return [mechanism for mechanism, _ in self.credentials]


def list_users(client: Client) -> list[User]:
    answer = client.ask_any(DescribeUserScramCredentialsRequest(users=None))
    raise_for_code(answer.error_code, answer.error_message, "users")
    return [
        User(
            each.user,
            [(_NAMES.get(info.mechanism, str(info.mechanism)), info.iterations) for info in each.credential_infos],
        )
        for each in sorted(answer.results, key=lambda each: each.user)
    ]


def delete_user(client: Client, user: User) -> None:
    for mechanism in user.mechanisms:
        delete_mechanism(client, user.name, mechanism)
