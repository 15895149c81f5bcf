"""How a command ends when it cannot do what it was asked to do."""

USAGE_ERROR = 2
FAILURE = 1


class CommandError(Exception):
    """Ends the command: one readable line for stderr, and the exit status."""

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status
