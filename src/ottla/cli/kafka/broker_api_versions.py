"""`ottla kafka broker-api-versions`: kafka-broker-api-versions."""

import argparse
from typing import TYPE_CHECKING

from ottla.cli.kafka.flags import add_client_flags, explain_code, fetch_metadata, open_client

if TYPE_CHECKING:
    from ottla.wire.frames import Api
    from ottla.wire.messages.api_versions import ApiVersion


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)


def run(options: argparse.Namespace) -> None:
    from ottla import __version__
    from ottla.client.connection import CLIENT_ID
    from ottla.wire.frames import list_kafka_apis
    from ottla.wire.messages.api_versions import ApiVersionsRequest

    ours = {api.key: api for api in list_kafka_apis()}
    with open_client(options) as client:
        for broker in sorted(fetch_metadata(client).brokers, key=lambda each: each.node_id):
            answer = client.ask_broker(
                broker.node_id, ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__)
            )
            address = (
                f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false)"
            )
            if answer.error_code:
                print(f"{address} -> ERROR: {explain_code(answer.error_code, None)}")
                continue
            theirs = {each.api_key: each for each in answer.api_keys}
            lines = [
                f"\t{ours[key].name if key in ours else 'UNKNOWN'}({key}): {_compare(ours.get(key), theirs.get(key))}"
                for key in sorted({*ours, *theirs})
            ]
            print(f"{address} -> (\n" + ",\n".join(lines) + "\n)")


def _compare(ours: "Api | None", theirs: "ApiVersion | None") -> str:
    """The versions of the broker, and the newest that both know."""
    if theirs is None:
        return "UNSUPPORTED"
    low, high = theirs.min_version, theirs.max_version
    common = min(ours.versions[-1], high) if ours is not None else -1
    return f"{low if low == high else f'{low} to {high}'} [{f'usable: {common}' if common >= low else 'unusable'}]"
