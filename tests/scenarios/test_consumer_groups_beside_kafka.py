"""The same clients of consumer groups (KIP-848) at Apache Kafka and at this broker: the same answers and epochs."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import pytest

from tests.kafka_peer import Clients
from tests.raw_client import RawClient
from tests.scenarios.client_calls import create_topic
from tests.scenarios.consumer_group_player import ConsumerGroupPlayer

ATTEMPTS = 10
TOPICS = {"t": 4, "u": 2}

SCRIPTS = {
    "members come, give back, get and leave": """
        a beats epoch=1
        a joins topics=t
        b joins topics=t
        a holds on
        b beats
        a pings
        a beats
        b beats
        a beats
        c joins topics=t,u
        a beats
        b beats
        a beats
        b beats
        c beats
        c beats
        d joins topics=t
        c leaves
        a beats
        b beats
        a leaves
        b beats
        b leaves
        b leaves
        b beats epoch=3
        b joins
    """,
    "epochs fence, and commits are held to them": """
        a joins topics=t
        b joins topics=t
        a beats
        a beats
        b beats
        a commits places=t0
        a commits epoch=2 places=t0
        a commits epoch=1 places=t0
        a commits epoch=4 places=t0
        b commits epoch=2 places=t3
        x commits epoch=3 places=t0
        x commits epoch=-1 places=t0
        a holds epoch=2
        a holds epoch=9
        a joins
        a beats
        b beats epoch=1
        b joins
        b beats
        a leaves
        b leaves
        x commits epoch=-1 places=t0
    """,
    "subscriptions change": """
        a joins topics=t
        b joins topics=u
        a beats
        a beats topics=u
        a beats
        b beats
        b beats
        a beats
        a beats topics=t,u
        a beats
        b beats topics=t,u
        b beats
        a beats
        b beats
        b beats topics=missing
        a beats
        b beats
        a beats
    """,
    "static members": """
        a joins topics=t instance=i
        b joins topics=t instance=k
        a beats
        a beats
        b beats
        c joins topics=t instance=i
        b leaves for=now
        a beats
        b joins id=b2
        b beats
        a leaves for=now
        c joins id=c2 topics=t,u instance=i
        a beats epoch=3
        a leaves
        c beats
        b beats
        c beats
        c leaves
        d joins topics=t instance=i
    """,
    "assignors and bad requests": """
        a joins topics=t assignor=range
        b joins topics=t assignor=range
        c joins topics=t assignor=uniform
        d joins topics=t assignor=sticky
        d joins topics=t assignor=uniform
        a beats
        b beats pattern=(
        b beats pattern=a(?=b)
        b leaves for=now
        b beats epoch=-3
    """,
    "sessions end": """
        a joins topics=t timeout=60000
        b joins topics=t
        a beats
        a beats
        1500 ms pass
        a beats
        1000 ms pass
        b beats
        a beats
        b joins
        a holds on
        a leaves
        2500 ms pass
        b beats
    """,
    "a time-out for giving back": """
        a joins topics=t timeout=1200
        b joins topics=t
        a holds on
        b beats
        700 ms pass
        a holds on
        b beats
        900 ms pass
        a holds on
        b beats
    """,
    "from the classic protocol and back": """
        a enters topics=t
        a enters
        a syncs a=t0,t1,t2,t3
        c joins topics=t
        a pulses
        a enters owns
        a syncs
        a pulses
        a enters owns
        a syncs
        c beats
        a pulses
        a commits places=t0
        b enters topics=t
        b enters
        b syncs
        c beats
        a pulses
        c beats
        b pulses
        b exits
        c leaves
        a pulses
        a exits
    """,
}


@pytest.fixture(scope="module")
def clients(both_clients: Clients) -> Clients:
    """A client of each broker, which has two topics."""
    for client in both_clients:
        for topic, partitions in TOPICS.items():
            create_topic(client, topic, partitions)
    return both_clients


_numbers = count()


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_brokers_give_the_same_answers(name: str, clients: Clients) -> None:
    # The transcripts are compared line by line: what each client is told, and what ConsumerGroupDescribe says after it
    # (epochs, states, members, how many partitions each has and is to have). On a busy machine a line may take too
    # long: then the script is played again.
    for _ in range(ATTEMPTS):
        group = f"consumer-{next(_numbers)}"
        with ThreadPoolExecutor() as pool:  # both players mostly wait
            theirs, ours = pool.map(partial(play_transcript, group, SCRIPTS[name]), clients)
        if ours == theirs:
            return
    assert ours == theirs


def play_transcript(group: str, script: str, client: RawClient) -> list[str]:
    player = ConsumerGroupPlayer(TOPICS)
    player.begin(client, group)
    return player.transcript(script)
