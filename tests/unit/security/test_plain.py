"""PLAIN: who is accepted, and who is not."""

import contextlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security import plain
from ottla.security.failure import AuthenticationFailed

USERS = {"alice": "secret", "ålice": "gehéim", "empty": ""}


def test_users_are_accepted() -> None:
    assert plain.authenticate(b"\0alice\0secret", USERS) == "alice"
    assert plain.authenticate(b"alice\0alice\0secret", USERS) == "alice"
    assert plain.authenticate("\0ålice\0gehéim".encode(), USERS) == "ålice"


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0alice\0secre",
        b"\0alice\0secret\0",
        b"\0nobody\0secret",
        b"\0nobody\0",
        b"\0alice\0",
        b"\0empty\0",
        b"\0\0secret",
        b"alice\0secret",
        b"",
        b"\0\0",
        b"\0alice\0secret\xff",
        b"\xff\0alice\0secret",
    ],
)
def test_others_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        plain.authenticate(message, USERS)


def test_an_empty_password_is_none() -> None:
    # Neither that of a user whose password was left empty, nor for a user that does not exist.
    for name in ("empty", "nobody"):
        with pytest.raises(AuthenticationFailed):
            plain.authenticate(f"\0{name}\0".encode(), {"empty": ""})


def test_nobody_acts_for_another_user() -> None:
    # CVE-2017-12610.
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        plain.authenticate(b"admin\0alice\0secret", USERS)


def test_a_wrong_password_and_an_unknown_user_get_the_same_answer() -> None:
    answers = []
    for message in (b"\0alice\0wrong", b"\0nobody\0wrong"):
        with pytest.raises(AuthenticationFailed) as refusal:
            plain.authenticate(message, USERS)
        answers.append(refusal.value.message)
    assert answers[0] == answers[1]


def test_passwords_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # CVE-2021-38153: every comparison goes through compare_digest, also that for an unknown user, on equal sizes.
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for message in (b"\0alice\0secret", b"\0alice\0x", b"\0nobody\0secret"):
        with contextlib.suppress(AuthenticationFailed):
            plain.authenticate(message, USERS)
    assert len(compared) == 3
    assert {len(each) for pair in compared for each in pair} == {32}


@given(st.binary(max_size=100))
def test_any_bytes_are_refused_and_nothing_else(noise: bytes) -> None:
    for message in (noise, b"\0alice\0" + noise, noise + b"\0alice\0secret"):
        try:
            assert plain.authenticate(message, USERS) == "alice"
            assert message in (b"\0alice\0secret", b"alice\0alice\0secret")
        except AuthenticationFailed:
            pass
