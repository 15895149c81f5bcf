"""Changes users: create, change the password, delete."""

from starlette.responses import Response

from ottla.client.client import Client
from ottla.client.scram_users import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, set_password
from ottla.console.calls import BadInput, Call, parse_number
from ottla.console.facts.users import User, delete_user, list_users

PASSWORD_MAX = 1_000


def change(call: Call) -> Response:
    name, action = call.field("name").strip(), call.field("action")
    if not name:
        raise BadInput("name the user")
    with call.console.clients.borrow() as client:
        known = next((user for user in list_users(client) if user.name == name), None)
        if action == "create":
            return _create(call, client, name, known)
        if known is None:
            raise BadInput(f"there is no user {name!r}")
        if action == "password":
            set_password(client, name, _read_password(call), known.mechanisms, _read_iterations(call))
            return call.redirect("/access", f"User {name} has a new password.")
        if action == "delete":
            if call.field("confirm").strip() != name:
                raise BadInput(f"type the user's name, {name}, to confirm")
            delete_user(client, known)
            return call.redirect("/access", f"User {name} is deleted.")
    raise BadInput(f"there is no action {action!r}")


def _create(call: Call, client: Client, name: str, known: User | None) -> Response:
    mechanism = call.field("mechanism")
    if mechanism and mechanism not in MECHANISMS:
        raise BadInput(f"mechanism: {mechanism!r} is none of {', '.join(MECHANISMS)}")
    wanted = [mechanism] if mechanism else list(MECHANISMS)
    if known is not None and set(wanted) & set(known.mechanisms):
        raise BadInput(f"user {name!r} exists; change the password instead")
    set_password(client, name, _read_password(call), wanted, _read_iterations(call))
    return call.redirect("/access", f"User {name} is created.")


def _read_password(call: Call) -> str:
    password = call.field("password")
    if not password or len(password) > PASSWORD_MAX:
        raise BadInput(f"a password has 1 to {PASSWORD_MAX} characters")
    return password


def _read_iterations(call: Call) -> int:
    text = call.field("iterations")
    return parse_number(text, "iterations", ITERATIONS_MIN, ITERATIONS_MAX) if text else ITERATIONS_MIN
