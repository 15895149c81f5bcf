"""`ottla certificates`: what it makes can be used at once, is private, and is never replaced unasked."""

import json
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import main
from ottla.client.settings import ClientSettings
from ottla.config.properties import read_properties


def make(directory: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["certificates", str(directory), "--format", "json", *arguments]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_one_command_makes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = make(tmp_path / "tls", capsys, "--host", "broker.example", "--host", "10.0.0.7", "--client", "alice")
    assert [(row["name"], row["kind"], row["state"]) for row in rows] == [
        ("ca", "authority", "made"),
        ("broker", "broker", "made"),
        ("alice", "client", "made"),
    ]
    for file in (tmp_path / "tls").iterdir():
        is_public = file.name in ("ca.pem", "truststore.p12")
        assert stat.S_IMODE(file.stat().st_mode) == (0o644 if is_public else 0o600), file.name
    decoded = ssl._ssl._test_decode_cert(str(tmp_path / "tls" / "broker.pem"))  # type: ignore[attr-defined]
    assert decoded["subjectAltName"] == (("DNS", "broker.example"), ("IP Address", "10.0.0.7"))
    settings = read_properties((tmp_path / "tls" / "alice.properties").read_text())
    assert ClientSettings.of({"bootstrap.servers": "x:1", **settings}).security.context is not None
    password = (tmp_path / "tls" / "store-password").read_text().strip()
    stores = {
        "bootstrap.servers": "x:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "tls" / "truststore.p12"),
        "ssl.truststore.password": password,
        "ssl.keystore.location": str(tmp_path / "tls" / "alice.p12"),
        "ssl.keystore.password": password,
    }
    assert ClientSettings.of(stores).security.context is not None


def test_what_is_there_is_kept_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, capsys)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    rows = make(tmp_path, capsys, "--client", "client", "--client", "bob")
    assert [row["state"] for row in rows] == ["kept", "kept", "kept", "made"]
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before
    assert [row["state"] for row in make(tmp_path, capsys, "--renew")] == ["kept", "renewed", "renewed"]
    assert (tmp_path / "ca.pem").read_bytes() == before["ca.pem"]
    assert (tmp_path / "broker.pem").read_bytes() != before["broker.pem"]
    make(tmp_path, capsys, "--replace-authority")
    assert (tmp_path / "ca.pem").read_bytes() != before["ca.pem"]


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, status, said in (
        (["--host", "not a host"], 2, "'not a host' is neither a host name nor an address"),
        (["--client", "ca"], 2, "'ca' cannot name a certificate"),
        (["--client", "../x"], 2, "cannot name a certificate"),
        (["--client", "a", "--broker", "a"], 2, "cannot name a certificate"),
    ):
        assert main(["certificates", str(tmp_path), *arguments]) == status
        assert said in capsys.readouterr().err
    (tmp_path / "ca-key.pem").unlink()
    assert main(["certificates", str(tmp_path)]) == 1
    assert "--replace-authority makes a new one" in capsys.readouterr().err
