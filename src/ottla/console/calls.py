"""One request and its answer: parameters, form fields, pages, redirects with a note, and errors that people can read.

Pages ask the cluster with clients that block, so they run in threads. A page is a function from a `Call` to a response.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from ottla.client.connection import NotAuthenticated, NotListening, Unreachable
from ottla.console.console import Console
from ottla.errors import ErrorCode, KafkaError

FORM_BYTES_MAX = 16 * 1024 * 1024
FIELDS_MAX = 10_000

_NOT_FOUND = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)
_DENIED = tuple(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


class BadInput(ValueError):
    """A parameter or a field of a form is wrong. The message is for people."""


class NotFound(BadInput):
    """The address of a page names what does not exist."""


class Call:
    def __init__(self, console: Console, templates: Environment, request: Request, form: dict[str, list[str]]) -> None:
        self.console = console
        self.request = request
        self.form = form
        self._templates = templates

    @property
    def root(self) -> str:
        return self.console.options.root_path

    def path(self, name: str) -> str:
        """A part of the path, such as the topic's name."""
        return str(self.request.path_params[name])

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the query."""
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, low: int, high: int) -> int:
        text = self.text(name)
        return parse_number(text, name, low, high) if text else default

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        """One of several words; the first is the default."""
        text = self.text(name, among[0])
        if text not in among:
            raise BadInput(f"{name}: {text!r} is none of {', '.join(among)}")
        return text

    def field(self, name: str, default: str = "") -> str:
        """A field of the form."""
        found = self.form.get(name)
        return found[0] if found else default

    def page(self, template: str, status: int = 200, /, **values: Any) -> Response:
        html = self._templates.get_template(template).render(
            {
                "root": self.root,
                "console": self.console,
                "here": self.request.scope["path"],
                "read_only": self.console.options.is_read_only,
                "note": self.console.find_note(self.text("note")),
                "parameters": dict(self.request.query_params),
                "can_log_out": self.request.app.state.has_login,
                **values,
            }
        )
        return HTMLResponse(html, status)

    def render(self, template: str, **values: Any) -> str:
        """A piece of a page."""
        return self._templates.get_template(template).render({"root": self.root, "console": self.console, **values})

    def redirect(self, path: str, note: str) -> Response:
        """After a change: show a page of the console with a message."""
        self.console.forget()
        joint = "&" if "?" in path else "?"
        return RedirectResponse(f"{self.root}{path}{joint}note={self.console.leave_note(note)}", 303)


Page = Callable[[Call], Response]


class PageEndpoint:
    """An ASGI application that runs a page in a thread. Errors of the cluster become readable pages."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        state = request.app.state
        call = Call(state.console, state.templates, request, {})
        try:
            call.form = await _read_form(request)
            response = await run_in_threadpool(self._run, call)
        except Exception as error:
            response = answer_error(call, error)
        await response(scope, receive, send)

    def _run(self, call: Call) -> Response:
        """Runs the page. A topic that is not in the cached metadata may be new, so the page is tried once more."""
        try:
            return self._page(call)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or call.form:
                raise
        call.console.metadata.forget()
        return self._page(call)


def answer_error(call: Call, error: Exception) -> Response:
    """A page that says what went wrong. An error that is a fault of the console itself is raised again."""
    if isinstance(error, BadInput):
        status, title = (404, "Not found") if isinstance(error, NotFound) else (400, "That is not possible")
        return call.page("error.html", status, title=title, message=str(error), hint="")
    if isinstance(error, Unreachable):
        hint = "Check the user, the password and the certificates." if isinstance(error, NotAuthenticated) else ""
        if isinstance(error, NotListening):
            hint = "Is a broker running there? (ottla up)"
        return call.page("error.html", 502, title="The cluster does not answer", message=str(error), hint=hint)
    if isinstance(error, KafkaError):
        status = 404 if error.code in _NOT_FOUND else 403 if error.code in _DENIED else 409
        title = "Not found" if status == 404 else "The cluster refuses"
        return call.page("error.html", status, title=title, message=explain(error), hint="")
    raise error


def explain(error: KafkaError) -> str:
    """One line: what the cluster said, and the name of its error code."""
    name = error.code.name
    words = " ".join(error.message.split()).rstrip(".")
    return f"{words} ({name})" if words and name not in words else words or name


async def _read_form(request: Request) -> dict[str, list[str]]:
    if request.method in ("GET", "HEAD"):
        return {}
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise BadInput("the form is larger than 16 MiB")
    form: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise BadInput("the form cannot be read") from None
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form


def parse_number(text: str, name: str, low: int, high: int) -> int:
    try:
        number = int(text.strip().replace("\u202f", ""))
    except ValueError:
        raise BadInput(f"{name}: {text!r} is not a whole number") from None
    if not low <= number <= high:
        raise BadInput(f"{name}: {number} is not between {low} and {high}")
    return number
