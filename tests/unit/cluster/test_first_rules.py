"""Metadata that a single broker wrote before there were clusters is read as it was meant."""

import pytest

from ottla.cluster.changes import FenceBroker, RegisterBroker, UnfenceBroker
from ottla.cluster.encoding import decode
from ottla.cluster.image import EMPTY, Image, PartitionImage
from ottla.cluster.leadership import ELIGIBLE_LEADER_REPLICAS, FIRST_RULES

DIRECTORY = b"\x01" * 16

# A broker starts, creates a topic, gives up partition 1 because of its disk, restarts cleanly, then after a crash.
LOG = [
    b'[{"cluster_id":"old-cluster","kind":"SetClusterId"},{"broker_id":1,"clean":true,"directory_id":'
    b'"AQEBAQEBAQEBAQEBAQEBAQ","endpoints":[["PLAINTEXT","localhost",9092,"PLAINTEXT"]],"kind":"RegisterBroker"}]',
    b'[{"broker_epoch":1,"broker_id":1,"kind":"UnfenceBroker"}]',
    b'[{"kind":"CreateTopic","name":"orders","topic_id":"AAECAwQFBgcICQoLDA0ODw"},{"isr":[1],"kind":"CreatePartition",'
    b'"leader":1,"partition":0,"replicas":[1],"topic_id":"AAECAwQFBgcICQoLDA0ODw"},{"isr":[1],"kind":"CreatePartition",'
    b'"leader":1,"partition":1,"replicas":[1],"topic_id":"AAECAwQFBgcICQoLDA0ODw"},{"key":"retention.ms","kind":'
    b'"SetConfig","resource_name":"orders","resource_type":2,"value":"5"}]',
    b'[{"kind":"ChangePartition","leader":-1,"partition":1,"partition_epoch":0,"topic_id":"AAECAwQFBgcICQoLDA0ODw"}]',
    b'[{"broker_id":1,"clean":true,"directory_id":"AQEBAQEBAQEBAQEBAQEBAQ","endpoints":[["PLAINTEXT","localhost",9092,'
    b'"PLAINTEXT"]],"kind":"RegisterBroker"}]',
    b'[{"broker_epoch":5,"broker_id":1,"kind":"UnfenceBroker"}]',
    b'[{"kind":"ChangePartition","leader":-1,"partition":1,"partition_epoch":2,"topic_id":"AAECAwQFBgcICQoLDA0ODw"}]',
    b'[{"broker_id":1,"directory_id":"AQEBAQEBAQEBAQEBAQEBAQ","endpoints":[["PLAINTEXT","localhost",9092,"PLAINTEXT"]],'
    b'"kind":"RegisterBroker"}]',
    b'[{"broker_epoch":8,"broker_id":1,"kind":"UnfenceBroker"}]',
]

SNAPSHOT = (
    b'[{"cluster_id":"old-cluster","kind":"SetClusterId"},{"broker_id":1,"directory_id":"AQEBAQEBAQEBAQEBAQEBAQ",'
    b'"endpoints":[["PLAINTEXT","localhost",9092,"PLAINTEXT"]],"epoch":8,"kind":"RegisterBroker"},{"broker_epoch":8,'
    b'"broker_id":1,"kind":"UnfenceBroker"},{"kind":"CreateTopic","name":"orders","topic_id":"AAECAwQFBgcICQoLDA0ODw"},'
    b'{"isr":[1],"kind":"CreatePartition","leader":1,"leader_epoch":4,"partition":0,"partition_epoch":4,"replicas":[1],'
    b'"topic_id":"AAECAwQFBgcICQoLDA0ODw","unclean":true},{"isr":[1],"kind":"CreatePartition","leader":1,"leader_epoch":'
    b'4,"partition":1,"partition_epoch":5,"replicas":[1],"topic_id":"AAECAwQFBgcICQoLDA0ODw","unclean":true},{"key":'
    b'"retention.ms","kind":"SetConfig","resource_name":"orders","resource_type":2,"value":"5"}]'
)


def read_log() -> Image:
    image = EMPTY
    for version, entry in enumerate(LOG, 1):
        image = image.replay(version, decode(entry))
    return image


def read_snapshot() -> Image:
    return EMPTY.replay(len(LOG), decode(SNAPSHOT))


@pytest.mark.parametrize("read", [read_log, read_snapshot])
def test_old_metadata_gives_the_image_of_its_time(read: object) -> None:
    """The epochs are those in the partitions' logs; the log and the snapshot give the same image."""
    image = read()  # type: ignore[operator]
    assert image.topics_by_name["orders"].partitions == (
        PartitionImage((1,), (1,), 1, 4, 4, recovering=True),
        PartitionImage((1,), (1,), 1, 4, 5, recovering=True),
    )
    assert image.brokers[1].directories == (DIRECTORY,)
    assert (image.brokers[1].epoch, image.brokers[1].fenced) == (8, False)
    assert dict(image.topic_configs("orders")) == {"retention.ms": "5"}
    assert image.election_rules == FIRST_RULES
    assert EMPTY.replay(image.version, image.snapshot()) == image
    assert read_log() == read_snapshot()


def test_an_old_broker_that_is_fenced_stays_the_last_in_sync_replica() -> None:
    """Replayed by the rules of its time, also when the fence comes from a newer version."""
    image = read_log()
    image = image.replay(image.version + 1, [FenceBroker(1, 8)])
    assert image.topics_by_name["orders"].partitions[0] == PartitionImage((1,), (1,), -1, 5, 5, recovering=True)


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_of_this_version_takes_over(clean: bool) -> None:
    """It registers by today's rules, and leads again at higher epochs."""
    image = read_log()
    image = image.replay(10, [RegisterBroker(1, (DIRECTORY, b"\x02" * 16), (), None, clean)])
    assert image.election_rules == ELIGIBLE_LEADER_REPLICAS
    eligible = (1,) if clean else ()
    state = image.topics_by_name["orders"].partitions[0]
    assert state == PartitionImage((1,), (), -1, 5, 5, elr=eligible, last_known_leader=1)
    image = image.replay(11, [UnfenceBroker(1, 10)])
    assert image.topics_by_name["orders"].partitions[0] == PartitionImage((1,), (1,), 1, 6, 6, recovering=not clean)
