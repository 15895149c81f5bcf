"""Failures of connections to PostgreSQL, without a server."""

import socket

import pytest

from ottla.connect.connectors.postgresql.connecting import Server, connect, quote_name, quote_text
from ottla.connect.errors import RetriableError


def test_a_server_that_is_away_is_tried_again() -> None:
    """The message is one line, names the server, and not the password."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens
        server = Server("127.0.0.1", bound.getsockname()[1], "shop", "ann", "hush-hush")
        with pytest.raises(RetriableError) as caught:
            connect(server)
    message = str(caught.value)
    assert message.startswith(f"127.0.0.1:{server.port}/shop: ")
    assert "refused" in message
    assert "\n" not in message
    assert "hush" not in message
    assert "hush" not in repr(server)


def test_names_and_texts_are_quoted() -> None:
    assert quote_name("public", 'a"b') == '"public"."a""b"'
    assert quote_text("it's") == "'it''s'"
    assert quote_text("a\\b'") == "E'a\\\\b'''"
