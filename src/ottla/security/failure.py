"""The one exception by which authentication fails."""


class AuthenticationFailed(Exception):
    """The client is not who it says. The message goes to the client: it must not tell whether a user exists."""

    def __init__(self, message: str, detail: str = "", token: bytes = b"") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.token = token
        """What the broker's log may say in addition."""
