"""The child process of process.py. It runs a broker and reads commands from standard input until that ends."""

import json
import os
import shutil
from collections.abc import Callable
from typing import IO, Any

from ottla.testing.cuts import BrokerNetwork
from ottla.testing.launch import ClusterMember, FaultOrder, Launch, NetworkState
from ottla.testing.remote_store import RemoteStore
from ottla.testing.thread import BrokerThread


def main() -> None:
    requests, replies = _open_channels()
    launch = _launch(json.loads(requests.readline()))
    network = BrokerNetwork()
    try:
        host = _start(launch, network)
    except Exception as error:
        _send(replies, {"error": _to_text(error)})
        return
    _send(replies, {"result": host.ports})
    commands: dict[str, Callable[..., Any]] = {
        "stop": host.stop,
        "ask": host.ask,
        "set_network": lambda state: network.become(NetworkState(*state)),
        "add_fault": lambda order: host.add_fault(FaultOrder(*order)),
        "clear_faults": host.clear_faults,
        "advance": host.advance,
        "copy_data": host.copy_data,
    }
    for line in requests:
        command, *arguments = json.loads(line)
        _send(replies, _answer(commands[command], arguments))
        if command == "stop":
            return
    host.kill()
    shutil.rmtree(launch.directory, ignore_errors=True)  # the test has died and cannot remove it


def _open_channels() -> tuple[IO[str], IO[str]]:
    """The pipes to the test. Standard output becomes a copy of standard error, so that a print is not read as a
    reply."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return requests, replies


def _launch(given: dict[str, Any]) -> Launch:
    member = given["member"]
    if member is not None:
        broker_id, store_name, store_path, network = member
        member = ClusterMember(broker_id, store_name, store_path, NetworkState(*network))
    return Launch(**{**given, "faults": [FaultOrder(*order) for order in given["faults"]], "member": member})


def _start(launch: Launch, network: BrokerNetwork) -> BrokerThread:
    member = launch.member
    if member is None:
        return BrokerThread(launch)
    network.become(member.network)
    store = RemoteStore(member.store_path, member.store_name)
    return BrokerThread(launch, store=store, connect=network.connector(member.broker_id))


def _answer(command: Callable[..., Any], arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"result": command(*arguments)}
    except Exception as error:
        return {"error": _to_text(error)}


def _to_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _send(replies: IO[str], reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
