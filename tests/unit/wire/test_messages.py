"""The generated modules: up to date, cheap to import, and free of kio."""

import subprocess
import sys
from pathlib import Path

import ottla
from ottla.wire import schema
from ottla.wire.messages import consumer_protocol_assignment, consumer_protocol_subscription, fetch
from tools.generate_messages import DESTINATION, generate_files

IMPORTS = """
import sys
import ottla.wire.message
from importlib import import_module
from ottla.wire.messages.index import APIS
import_module("ottla.wire.messages.heartbeat")
before = set(sys.modules)
for row in APIS:
    import_module(f"ottla.wire.messages.{row[2]}")
print(*set(sys.modules) - before)
"""


def test_generated_files_are_up_to_date() -> None:
    """Running the generator again changes nothing: no more and no fewer files, with the same text."""
    generated = dict(generate_files())
    assert {path.name for path in DESTINATION.glob("*.py")} == set(generated)
    for name, text in generated.items():
        assert (DESTINATION / name).read_text() == text, f"{name}: run tools/generate_messages.py"


def test_importing_is_cheap_and_needs_no_kio() -> None:
    """After the first message module, the others import nothing that is not a message module: neither kio nor more."""
    source = Path(ottla.__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-c", IMPORTS], env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True
    )
    imported = run.stdout.split()
    assert len(imported) > 40
    assert [name for name in imported if not name.startswith("ottla.wire.messages.")] == []


def test_module_constants() -> None:
    """A module has its key, its versions and the first flexible one, and so have its messages."""
    assert (1, range(4, 19), 12) == (fetch.API_KEY, fetch.VERSIONS, fetch.FLEXIBLE_FROM)
    assert fetch.FetchRequest.VERSIONS == fetch.FetchResponse.VERSIONS == fetch.VERSIONS
    assert fetch.FetchRequest.FLEXIBLE_FROM == 12


def test_consumer_protocol_schemas() -> None:
    """The bytes that group members exchange can be decoded too."""
    subscription = consumer_protocol_subscription.ConsumerProtocolSubscription(topics=["a", "b"])
    encoded = schema.encode(type(subscription), 3, subscription)
    assert schema.decode(type(subscription), 3, encoded) == subscription
    assignment = consumer_protocol_assignment.ConsumerProtocolAssignment()
    encoded = schema.encode(type(assignment), 0, assignment)
    assert encoded == bytes(4) + b"\xff\xff\xff\xff"
