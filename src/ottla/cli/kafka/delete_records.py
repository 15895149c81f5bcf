"""`ottla kafka delete-records`: kafka-delete-records."""

import argparse

from ottla.cli.kafka.flags import TIMEOUT_MS, add_client_flags, explain_code, open_client
from ottla.cli.plan_files import read_partitions


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    parser.add_argument(
        "--offset-json-file",
        required=True,
        metavar="FILE",
        help='{"partitions": [{"topic": "a", "partition": 0, "offset": 3}], "version": 1}; offset -1 is the end',
    )


def run(options: argparse.Namespace) -> None:
    from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

    wanted = read_partitions(options.offset_json_file, "offset")
    with open_client(options) as client:
        print("Executing records delete operation")
        results = []
        for (topic, partition), entry in wanted.items():
            asked = DeleteRecordsPartition(partition_index=partition, offset=entry["offset"])
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=TIMEOUT_MS
            )
            results.append((topic, client.ask_leader(topic, partition, request).topics[0].partitions[0]))
    print("Records delete operation completed:")
    for topic, found in results:
        fact = (
            f"error: {explain_code(found.error_code, None)}"
            if found.error_code
            else f"low_watermark: {found.low_watermark}"
        )
        print(f"partition: {topic}-{found.partition_index}\t{fact}")
