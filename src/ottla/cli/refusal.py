"""How a command says that it cannot do what was asked."""

BAD_REQUEST = 2
OBSTACLE = 1


class Refusal(Exception):
    """One readable line for the person at the keyboard, and the exit status that goes with it."""

    def __init__(self, message: str, status: int = OBSTACLE) -> None:
        super().__init__(message)
        self.status = status
