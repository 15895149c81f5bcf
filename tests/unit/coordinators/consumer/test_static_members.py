"""Static members of consumer groups: they come back, take their own place, and are fenced."""

from tests.unit.coordinators.consumer_scripts import play


def test_one_that_comes_back_finds_its_place() -> None:
    # It left for now: nobody else gets its partitions, and under a new member id it goes on with them.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a leaves for=now            | [Reconciling]; a: epoch -2
        30000 ms pass               |
        a joins id=a2               | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a beats                     | a: epoch 2
        a commits epoch=1 places=t0 | a: commits
    """)


def test_one_that_does_not_come_back_is_gone() -> None:
    # Its session goes on from when it was last heard of.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t            | [Reconciling]; b: epoch 3, reads nothing
        a leaves for=now            | a: epoch -2
        44000 ms pass               |
        b beats                     | b: epoch 3
        1000 ms pass                | [Assigning]
        b beats                     | [Stable]; b: epoch 4, reads t0 t1 t2 t3
    """)


def test_two_with_one_name() -> None:
    # While the first is there the second cannot join; when it has taken the place, the first is fenced.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t instance=i | b: UNRELEASED_INSTANCE_ID
        a leaves for=now            | [Reconciling]; a: epoch -2
        b joins                     | [Stable]; b: epoch 2, reads t0 t1 t2 t3
        a beats epoch=2             | a: FENCED_INSTANCE_ID
        a leaves                    | a: FENCED_INSTANCE_ID
        b beats                     | b: epoch 2
    """)


def test_the_same_one_may_join_again() -> None:
    # A static member that was fenced and kept its member id is not locked out until its session ends.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a beats epoch=7             | a: FENCED_MEMBER_EPOCH
        a joins                     | a: epoch 2, reads t0 t1 t2 t3
    """)


def test_one_that_leaves_for_good() -> None:
    # Its name is free again.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a leaves                    | [Empty]; a: epoch -1
        b joins topics=t instance=i | [Stable]; b: epoch 4, reads t0 t1 t2 t3
        c beats epoch=2             | c: UNKNOWN_MEMBER_ID
    """)


def test_one_that_comes_back_to_another_assignment() -> None:
    # What it was about to give back when it left is given back; the rest waits for it.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t            | [Reconciling]; b: epoch 3, reads nothing
        a holds on                  | a: epoch 2, reads t0 t1
        a leaves for=now            | a: epoch -2
        b beats                     | b: epoch 3, reads t2 t3
        reload                      |
        a joins id=a2               | [Stable]; a: epoch 3, reads t0 t1
    """)


def test_one_that_comes_back_with_another_subscription() -> None:
    # Then everybody's share is computed anew.
    play(
        """
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1
        a leaves for=now            | [Reconciling]; a: epoch -2
        a joins id=a2 topics=u      | [Stable]; a: epoch 3, reads u0
        """,
        {"t": 2, "u": 1},
    )


def test_one_that_comes_back_to_a_full_group() -> None:
    # It needs no more room than it had; a stranger finds none.
    play(
        """
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a leaves for=now            | [Reconciling]; a: epoch -2
        b joins topics=t            | b: GROUP_MAX_SIZE_REACHED
        b joins instance=k          | b: GROUP_MAX_SIZE_REACHED
        a joins id=a2               | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        """,
        group_consumer_max_size=1,
    )


def test_one_that_left_for_now_need_not_give_back_in_time() -> None:
    # It has given back everything that it was asked for by leaving.
    play("""
        a joins topics=t instance=i timeout=8000 | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t            | [Reconciling]; b: epoch 3, reads nothing
        a holds on                  | a: epoch 2, reads t0 t1
        a leaves for=now            | a: epoch -2
        9000 ms pass                |
        b beats                     | b: epoch 3, reads t2 t3
        a joins id=a2               | [Stable]; a: epoch 3, reads t0 t1
    """)
