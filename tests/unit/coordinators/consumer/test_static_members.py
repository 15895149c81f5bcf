"""Static members of consumer groups: they come back, take their own place, and are fenced."""

from tests.unit.coordinators.consumer_scripts import play


def test_a_static_member_that_returns_keeps_its_partitions() -> None:
    # The member left temporarily. Nobody else gets its partitions, and it continues with them under a new member id.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a leaves for=now            | [Reconciling]; a: epoch -2
        30000 ms pass               |
        a joins id=a2               | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a beats                     | a: epoch 2
        a commits epoch=1 places=t0 | a: commits
    """)


def test_a_static_member_that_does_not_return_is_removed() -> None:
    # Its session continues from its last heartbeat.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t            | [Reconciling]; b: epoch 3, reads nothing
        a leaves for=now            | a: epoch -2
        44000 ms pass               |
        b beats                     | b: epoch 3
        1000 ms pass                | [Assigning]
        b beats                     | [Stable]; b: epoch 4, reads t0 t1 t2 t3
    """)


def test_two_members_with_one_instance_id() -> None:
    # While the first is in the group the second cannot join. When the second has taken the place, the first is fenced.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t instance=i | b: UNRELEASED_INSTANCE_ID
        a leaves for=now            | [Reconciling]; a: epoch -2
        b joins                     | [Stable]; b: epoch 2, reads t0 t1 t2 t3
        a beats epoch=2             | a: FENCED_INSTANCE_ID
        a leaves                    | a: FENCED_INSTANCE_ID
        b beats                     | b: epoch 2
    """)


def test_a_fenced_static_member_may_join_again() -> None:
    # A static member that was fenced and kept its member id is not locked out until its session ends.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a beats epoch=7             | a: FENCED_MEMBER_EPOCH
        a joins                     | a: epoch 2, reads t0 t1 t2 t3
    """)


def test_a_static_member_leaves_for_good() -> None:
    # Its instance id is free again.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        a leaves                    | [Empty]; a: epoch -1
        b joins topics=t instance=i | [Stable]; b: epoch 4, reads t0 t1 t2 t3
        c beats epoch=2             | c: UNKNOWN_MEMBER_ID
    """)


def test_a_static_member_returns_to_another_assignment() -> None:
    # Partitions that it was about to give up when it left are released. The rest waits for it.
    play("""
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t            | [Reconciling]; b: epoch 3, reads nothing
        a holds on                  | a: epoch 2, reads t0 t1
        a leaves for=now            | a: epoch -2
        b beats                     | b: epoch 3, reads t2 t3
        reload                      |
        a joins id=a2               | [Stable]; a: epoch 3, reads t0 t1
    """)


def test_a_static_member_returns_with_another_subscription() -> None:
    # Then all shares are computed again.
    play(
        """
        a joins topics=t instance=i | [Stable]; a: epoch 2, reads t0 t1
        a leaves for=now            | [Reconciling]; a: epoch -2
        a joins id=a2 topics=u      | [Stable]; a: epoch 3, reads u0
        """,
        {"t": 2, "u": 1},
    )


def test_a_static_member_returns_to_a_full_group() -> None:
    # The member has its place already. A new member is refused.
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


def test_a_member_that_left_temporarily_has_no_rebalance_timeout() -> None:
    # By leaving it has given up everything that it was asked for.
    play("""
        a joins topics=t instance=i timeout=8000 | [Stable]; a: epoch 2, reads t0 t1 t2 t3
        b joins topics=t            | [Reconciling]; b: epoch 3, reads nothing
        a holds on                  | a: epoch 2, reads t0 t1
        a leaves for=now            | a: epoch -2
        9000 ms pass                |
        b beats                     | b: epoch 3, reads t2 t3
        a joins id=a2               | [Stable]; a: epoch 3, reads t0 t1
    """)
