"""SCRAM: the messages of RFC 5802 and 7677, and what a server must refuse."""

import base64
import contextlib
import hmac
import re
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security import scram
from ottla.security.failure import AuthenticationFailed

MECHANISMS = sorted(scram.HASHES)


def converse(mechanism: str, password: str = "pencil", guess: str | None = None) -> scram.ServerConversation:
    """A whole conversation. Returns the server, after it has accepted the client."""
    credential = scram.derive(mechanism, password.encode(), b"salt" * 4, 4096)
    client = scram.ClientConversation(mechanism, "a,l=ice", guess or password, b"client nonce")
    first = scram.read_client_first(client.client_first)
    assert first.name == "a,l=ice"
    server = scram.ServerConversation(mechanism, first, credential, b"server nonce")
    client.check(server.finish(client.answer(server.server_first)))
    return server


def test_the_example_of_the_standard() -> None:
    # RFC 7677, section 3.
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = scram.derive("SCRAM-SHA-256", b"pencil", salt, 4096)
    first = scram.read_client_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    server = scram.ServerConversation("SCRAM-SHA-256", first, credential, b"")
    server._nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server.server_first = b"r=" + server._nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = b"c=biws,r=" + server._nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.finish(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_only_the_password_is_accepted(mechanism: str) -> None:
    converse(mechanism)
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        converse(mechanism, guess="pencils")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_proof_cannot_be_sent_again(mechanism: str) -> None:
    # CVE-2024-56128: the last message must have the nonce of this conversation.
    credential = scram.derive(mechanism, b"pencil", b"salt" * 4, 4096)
    client = scram.ClientConversation(mechanism, "alice", "pencil", b"client nonce")
    first = scram.read_client_first(client.client_first)
    earlier = scram.ServerConversation(mechanism, first, credential, b"server nonce")
    final = client.answer(earlier.server_first)
    earlier.finish(final)
    later = scram.ServerConversation(mechanism, first, credential, b"another nonce")
    with pytest.raises(AuthenticationFailed):
        later.finish(final)
    # With the nonce of the later conversation in an earlier proof, the proof is wrong.
    with pytest.raises(AuthenticationFailed):
        later.finish(re.sub(rb"r=[^,]*", b"r=" + later._nonce, final))


def test_the_nonce_is_compared_even_if_the_proof_is_right() -> None:
    # Whoever knows the stored key could sign any nonce; the server must insist on its own.
    credential = scram.derive("SCRAM-SHA-256", b"pencil", b"salt" * 4, 4096)
    first = scram.read_client_first(b"n,,n=alice,r=abc")
    server = scram.ServerConversation("SCRAM-SHA-256", first, credential, b"nonce")
    salted = scram.salt_password("SCRAM-SHA-256", b"pencil", b"salt" * 4, 4096)
    without_proof = b"c=biws,r=abc"
    signed = b",".join((first.bare, server.server_first, without_proof))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(credential.stored_key, signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    with pytest.raises(AuthenticationFailed):
        server.finish(without_proof + b",p=" + proof)


def test_channel_binding_that_was_not_agreed_is_refused() -> None:
    for message in (b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc"):
        with pytest.raises(AuthenticationFailed):
            scram.read_client_first(message)
    credential = scram.derive("SCRAM-SHA-256", b"pencil", b"salt", 4096)
    first = scram.read_client_first(b"n,,n=alice,r=abc")
    server = scram.ServerConversation("SCRAM-SHA-256", first, credential, b"nonce")
    with pytest.raises(AuthenticationFailed):
        server.finish(b"c=eSws,r=" + server._nonce + b",p=" + base64.b64encode(bytes(32)))


def prove(server: scram.ServerConversation, first: scram.ClientFirst, without_proof: bytes) -> bytes:
    """What a client that knows the password can sign."""
    signed = b",".join((first.bare, server.server_first, without_proof))
    salted = scram.salt_password("SCRAM-SHA-256", b"pencil", b"salt" * 4, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = scram.derive("SCRAM-SHA-256", b"pencil", b"salt" * 4, 4096).stored_key
    signature = hmac.digest(stored_key, signed, "sha256")
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


def test_a_channel_binding_is_compared_even_if_the_proof_is_right() -> None:
    # RFC 5802: the last message repeats the header of the first one. `eSws` is `y,,`.
    credential = scram.derive("SCRAM-SHA-256", b"pencil", b"salt" * 4, 4096)
    first = scram.read_client_first(b"n,,n=alice,r=abc")
    for binding, is_right in ((b"biws", True), (b"eSws", False), (b"bixhPWFkbWluLA==", False)):
        server = scram.ServerConversation("SCRAM-SHA-256", first, credential, b"nonce")
        without_proof = b"c=" + binding + b",r=" + server._nonce
        final = without_proof + b",p=" + base64.b64encode(prove(server, first, without_proof))
        if is_right:
            assert server.finish(final).startswith(b"v=")
        else:
            with pytest.raises(AuthenticationFailed):
                server.finish(final)


@pytest.mark.parametrize("change", [lambda proof: proof + b"\0", lambda proof: proof[:-1], lambda proof: proof * 2])
def test_a_proof_of_another_length_is_refused(change: Callable[[bytes], bytes]) -> None:
    credential = scram.derive("SCRAM-SHA-256", b"pencil", b"salt" * 4, 4096)
    first = scram.read_client_first(b"n,,n=alice,r=abc")
    server = scram.ServerConversation("SCRAM-SHA-256", first, credential, b"nonce")
    without_proof = b"c=biws,r=" + server._nonce
    proof = change(prove(server, first, without_proof))
    with pytest.raises(AuthenticationFailed):
        server.finish(without_proof + b",p=" + base64.b64encode(proof))


def test_nobody_acts_for_another_user() -> None:
    # CVE-2017-12610: the authorization id is empty, or the user itself.
    assert scram.read_client_first(b"n,a=alice,n=alice,r=abc").name == "alice"
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        scram.read_client_first(b"n,a=admin,n=alice,r=abc")


def test_a_user_that_does_not_exist_looks_like_one() -> None:
    # The same salt each time, another one for another name, and no password fits.
    invented = scram.invent("SCRAM-SHA-512", "mallory", b"secret", 8192)
    assert invented == scram.invent("SCRAM-SHA-512", "mallory", b"secret", 8192)
    assert invented.salt != scram.invent("SCRAM-SHA-512", "alice", b"secret", 8192).salt
    real = scram.derive("SCRAM-SHA-512", b"x", bytes(scram.SALT_BYTES), 8192)
    assert [len(each) for each in invented[:3]] == [len(each) for each in real[:3]]


def test_a_credential_shows_no_key() -> None:
    credential = scram.derive("SCRAM-SHA-256", b"pencil", b"saltsalt", 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"


def test_a_client_refuses_a_server_that_does_not_know_it() -> None:
    client = scram.ClientConversation("SCRAM-SHA-256", "alice", "pencil", b"nonce")
    server_first = b"r=" + base64.b64encode(b"nonce") + b"more,s=c2FsdA==,i=4096"
    client.answer(server_first)
    with pytest.raises(AuthenticationFailed):
        client.check(b"v=" + base64.b64encode(bytes(32)))
    for weak in (b"r=other,s=c2FsdA==,i=4096", server_first.replace(b"4096", b"1"), server_first.replace(b"more", b"")):
        with pytest.raises(AuthenticationFailed):
            scram.ClientConversation("SCRAM-SHA-256", "alice", "pencil", b"nonce").answer(weak)


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_any_bytes_are_refused_and_nothing_else(noise: bytes, seed: int) -> None:
    # Parsers that anybody can reach: they refuse, and raise nothing else.
    random = Random(seed)
    for valid in (b"n,,n=alice,r=abcdef,tokenauth=true", b"c=biws,r=abcdefnonce,p=AAAA"):
        cut = bytearray(valid)
        cut[random.randrange(len(cut)) : random.randrange(len(cut))] = noise
        credential = scram.invent("SCRAM-SHA-256", "alice", b"secret")
        first = scram.ClientFirst(b"n,,", b"n=alice,r=abc", "alice", b"abc", {})
        server = scram.ServerConversation("SCRAM-SHA-256", first, credential, b"nonce")
        for parse in (scram.read_client_first, server.finish):
            for message in (noise, bytes(cut)):
                with contextlib.suppress(AuthenticationFailed):
                    parse(message)
