"""Login and logout."""

from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from ottla.console.calls import Call
from ottla.console.login import COOKIE, SESSION_S, Login, TooManyAttempts


def show(call: Call) -> Response:
    login = _find_login(call)
    token = call.text("token")
    if login is None:
        return RedirectResponse(f"{call.root}/", 303)
    if token:  # the address that the console prints when it starts
        return _try(call, login, token, call.text("to"))
    return call.page("login.html", wrong=False, to=call.text("to"))


def log_in(call: Call) -> Response:
    login = _find_login(call)
    if login is None:
        return RedirectResponse(f"{call.root}/", 303)
    return _try(call, login, call.field("token"), call.field("to"))


def log_out(call: Call) -> Response:
    response = RedirectResponse(f"{call.root}/login", 303)
    response.delete_cookie(COOKIE, path=call.root or "/")
    return response


def _try(call: Call, login: Login, token: str, to: str) -> Response:
    try:
        accepted = login.accepts(token.strip())
    except TooManyAttempts:
        return call.page("error.html", 429, title="Too many attempts", message="Try again in a minute.", hint="")
    if not accepted:
        return call.page("login.html", 401, wrong=True, to=to)
    response = RedirectResponse(f"{call.root}{_own_path(to)}", 303)
    response.set_cookie(
        COOKIE,
        login.make_cookie(),
        max_age=SESSION_S,
        path=call.root or "/",
        httponly=True,
        samesite="strict",
        secure=call.request.headers.get("x-forwarded-proto") == "https",
    )
    return response


def _own_path(to: str) -> str:
    """A path of the console itself: `//elsewhere` and `https://elsewhere` lead to its first page."""
    parts = urlsplit(to)
    is_own = not parts.scheme and not parts.netloc and to.startswith("/") and not to.startswith(("//", "/\\"))
    return to if is_own and "\\" not in to and not any(ord(each) < 32 for each in to) else "/"


def _find_login(call: Call) -> Login | None:
    login: Login | None = call.request.app.state.login
    return login
