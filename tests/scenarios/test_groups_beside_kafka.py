"""The same clients of classic groups at Apache Kafka and at this broker: the same answers, the same states."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import pytest

from tests.kafka_peer import Addresses
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import create_topic
from tests.scenarios.group_scripts import GroupPlayer

SLOWNESS = (1, 1, 4, 10, 20, 40)
"""How much more time answers get in each attempt."""

SCRIPTS = {
    "two members come, go and come back": """
        a joins
        a joins ...
        wait for a
        a syncs a=p0
        a beats
        b joins
        a beats
        b joins ...
        a beats
        a commits
        a joins
        wait for a b
        b commits
        b syncs ...
        a syncs a=p0 b=p1
        wait for a b
        b commits
        b commits 1
        b joins
        b syncs
        b joins topics=u ...
        b hangs_up
        b joins ...
        a joins
        wait for a b
        a syncs a=p0 b=p1
        b syncs
        a leaves
        a beats
        b beats
        b joins
        b leaves
        b leaves
        a joins
        a joins id=none
    """,
    "old versions": """
        a joins version=0 rebalance=-1 session=1000 ...
        wait for a
        a syncs a=p0
        b joins version=3 session=1000 ...
        a joins version=0 rebalance=-1 session=1000
        wait for a b
        a leaves
        b syncs
    """,
    "static members": """
        a joins instance=i1 ...
        b joins instance=i2 ...
        wait for a b
        a syncs a=p0 b=p1
        b syncs
        b restarts
        b joins
        b syncs
        a restarts
        a joins
        a syncs
        a restarts
        a joins version=8
        a syncs
        c joins instance=i2 version=9
        b beats
        b commits
        b leaves
        b joins
        c syncs
        c beats
        c joins instance=i7
        x removes i1,i9
        c joins instance=i2
    """,
    "static members that change and wait": """
        a joins instance=i1 protocols=range,sticky ...
        wait for a
        a syncs a=p0
        a restarts
        a joins protocols=sticky,range
        a syncs a=p0
        b joins instance=i2 protocols=sticky,range ...
        c joins instance=i2 protocols=sticky,range ...
        wait for b
        a joins
        wait for a c
        c syncs ...
        d joins instance=i2 protocols=sticky,range ...
        wait for c
        a syncs a=p0 c=p1
        a joins
        wait for a d
    """,
    "members that fall silent": """
        a joins version=3 session=1000 rebalance=2000 ...
        b joins version=3 session=1000 rebalance=2000 ...
        wait for a b
        a syncs a=p0 b=p1
        b syncs
        600 ms pass
        a beats
        700 ms pass
        a beats
        a joins
        b beats
        a syncs a=p0
        1300 ms pass
        a beats
        a commits
    """,
    "members that never sync": """
        a joins version=3 session=30000 rebalance=800 ...
        b joins version=3 session=30000 rebalance=800 ...
        wait for a b
        a syncs a=p0 b=p1
        b beats
        1100 ms pass
        a beats
        b syncs
        a joins
        1100 ms pass
        a beats
        a syncs a=p0
    """,
    "votes and refusals": """
        a joins version=3 protocols=range,sticky ...
        b joins version=3 protocols=sticky,range ...
        x joins protocols=
        x joins type= protocols=range
        c joins version=3 protocols=sticky,range,x ...
        wait for a b c
        a syncs a=p0 b=p1 c=p2
        x syncs
        x joins protocols=other type=consumer
        b joins type=connect
        b beats
        x joins session=100
        x joins session=100000000
        a joins session=10000 ...
        x joins version=3 session=10000 protocols=sticky ...
        b joins session=10000
        b leaves
        c joins session=10000
        wait for a x
    """,
    "another kind of group": """
        a joins type=connect protocols=v1
        a joins ...
        x commits -1
        wait for a
        a syncs a=p0
        a commits
        x commits -1
        x commits 5
        a leaves
        x commits -1
    """,
}


@pytest.fixture(scope="module")
def addresses(both_addresses: Addresses) -> Addresses:
    """The addresses of both brokers, each of which has a topic."""
    for address in both_addresses:
        with RawClient(*address, timeout_s=PATIENCE_S) as client:
            create_topic(client, "t")
    return both_addresses


_numbers = count()


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_brokers_give_the_same_answers(name: str, addresses: Addresses) -> None:
    # The transcripts are compared line by line: what each client is told, when it is told, and what DescribeGroups says
    # after it. The scripts leave out some intended differences: a refused first join leaves no group behind; a static
    # member that came back is shown with its new client id and address, and keeps its place in a full group; a member
    # id that is given back disturbs nobody. On a busy machine an answer may come after its line: then the script is
    # played again, more slowly.
    for slowness in SLOWNESS:
        group = f"classic-{next(_numbers)}"
        with ThreadPoolExecutor() as pool:  # both players mostly wait
            theirs, ours = pool.map(partial(play_transcript, group, SCRIPTS[name], slowness), addresses)
        if ours == theirs:
            return
    assert ours == theirs


def play_transcript(group: str, script: str, slowness: float, address: tuple[str, int]) -> list[str]:
    with GroupPlayer(address, group, "t", slowness) as player:
        player.await_coordinator()
        return player.play(script)
