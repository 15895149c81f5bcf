"""A short run of what `make fuzz` does for longer, and requests that it found."""

import sys
from pathlib import Path
from random import Random

import pytest

from ottla.errors import ErrorCode
from ottla.records.batch import check
from ottla.records.compression import CorruptBatch
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.raw_client import RawClient
from tests.samples import sample_size
from tests.scenarios.every_request import ask_until_settled, errors_in
from tests.scenarios.fuzz.attacks import ATTACKS
from tests.scenarios.fuzz.bombs import make_bomb, make_malformed_batch
from tests.scenarios.fuzz.siege import Siege
from tests.scenarios.fuzz.strangers import STRANGERS, secured_up

ROUNDS = sample_size(30, 800)


@pytest.mark.skipif(sys.platform != "linux", reason="memory and descriptors of a process as Linux has them")
def test_a_broker_under_siege_goes_on_working(tmp_path: Path, seed: int) -> None:
    # All attacks run, three at once, also those on TLS, SASL and the tokens of every mechanism. A well-behaved client
    # is answered all the time, nobody comes in without a login, memory stays within its limit, descriptors are closed,
    # and nothing unexpected is logged.
    with secured_up(tmp_path) as (broker, ports):
        findings = Siege(broker, seed, (*ATTACKS, *STRANGERS), ports).run(attacks=ROUNDS)
    assert not findings.problems, f"{findings}\n" + "\n".join(findings.problems)
    assert findings.answered > 0


def test_bombs_and_malformed_batches_have_a_correct_checksum(seed: int) -> None:
    # Otherwise they would be refused for their checksum, and the test would show nothing.
    random = Random(seed)
    for _ in range(20):
        check(make_bomb(random))
    passed = 0
    for _ in range(50):
        try:
            check(make_malformed_batch(random))
            passed += 1
        except CorruptBatch:
            pass  # the batch was cut so short that it has no header
    assert passed > 25


@pytest.mark.parametrize("version", (10, 11))
def test_regression_a_null_topic_name_in_a_version_without_topic_ids(version: int, client: RawClient) -> None:
    # The name may be null in requests from version 10 on, but in answers only from 12 on.
    answer = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), version)
    assert [(each.name, each.error_code) for each in answer.topics] == [("", ErrorCode.INVALID_REQUEST)]


def test_regression_an_offset_with_the_longest_retention_time(client: RawClient, topic: str) -> None:
    # With the longest retention time there is, the expiry is beyond the largest timestamp.
    partition = OffsetCommitRequestPartition(committed_offset=7)
    commit = OffsetCommitRequest(
        group_id="forever",
        retention_time_ms=2**63 - 1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    assert errors_in(ask_until_settled(client, commit, 3)) == []
