"""`ottla consume --isolation`: records of an open transaction are shown only to those who ask for them."""

from confluent_kafka import Producer

import ottla.testing
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run


def test_an_open_transaction() -> None:
    with ottla.testing.broker() as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer"})
        producer.init_transactions(PATIENCE_S)
        for value, is_last in ((b"done", False), (b"open", True)):
            producer.begin_transaction()
            producer.produce("orders", value)
            producer.flush(PATIENCE_S)
            if not is_last:
                producer.commit_transaction(PATIENCE_S)
        line = ["consume", "orders", "-b", broker.bootstrap]
        assert run(line).output == "done\n"
        assert run([*line, "--isolation", "read_committed"]).output == "done\n"
        assert run([*line, "--isolation", "read_uncommitted"]).output == "done\nopen\n"
        assert run([*line, "--isolation", "read_uncommitted", "--last", "1"]).output == "open\n"
        producer.abort_transaction(PATIENCE_S)
