"""A broker that is alone needs nothing of what a cluster needs."""

import subprocess
import sys

CODE = """
import sys
import ottla.testing
with ottla.testing.broker() as broker:
    broker.create_topic("orders")
names = ("kazoo", "ottla.broker.member", "ottla.cluster.controller", "ottla.cluster.zookeeper",
         "ottla.cluster.membership", "ottla.replication.fetchers", "ottla.replication.peers")
print(*[name for name in names if name in sys.modules])
"""


def test_a_broker_alone_imports_nothing_of_a_cluster() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
