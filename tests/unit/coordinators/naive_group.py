"""A classic group written in the simplest way: lists that are searched, deadlines that are checked every second.

It reports what it does with the same lines as `classic_scripts`, so that the two can be compared.
"""

from dataclasses import dataclass, field

SECOND = 1000
NEW_MEMBER_MS = 300_000


@dataclass
class NaiveMember:
    id: str
    instance: str | None
    session: int
    rebalance: int
    protocols: list[str]
    topics: str
    ends_at: int | None
    new: bool = True
    joining: str | None = None
    """The name of the client that waits for the response to JoinGroup."""
    syncing: str | None = None
    synced: bool = True
    assignment: str = ""

    @property
    def name(self) -> str:
        return self.id.split("-")[0]


@dataclass
class NaiveGroup:
    limit: int
    delay: int = 3000
    now: int = 0
    state: str = "Empty"
    generation: int = 0
    protocol: str | None = None
    members: list[NaiveMember] = field(default_factory=list)
    leader: str | None = None
    pending: dict[str, int] = field(default_factory=dict)
    deadline: int | None = None
    initial: bool = False
    more_came: bool = False
    left_to_wait: int = 0
    told: list[str] = field(default_factory=list)
    stored: tuple[int, list[tuple[str, str]]] = (0, [])

    # --- requests ---

    def join(
        self,
        client: str,
        member_id: str,
        instance: str | None,
        protocols: list[str],
        topics: str,
        session: int,
        rebalance: int,
        version: int,
        fresh: str,
    ) -> None:
        known = self.find(member_id) or (None if member_id else self.find_instance(instance))
        waiting = len([each for each in self.members if each.joining])
        if self.state == "PreparingRebalance":
            room = (known is not None and known.joining is not None) or waiting < self.limit
        else:
            room = self.state == "Empty" or known is not None or len(self.members) < self.limit
        if not room:
            self.told.append(f"{client}: GROUP_MAX_SIZE_REACHED")
            self.pending.pop(member_id, None)
            if self.find(member_id):
                self.remove(self.find(member_id))
            if self.state == "PreparingRebalance":
                self.go_on()
            return
        if self.state != "Empty" and not any(
            all(name in each.protocols for each in self.members) for name in protocols
        ):
            self.told.append(f"{client}: INCONSISTENT_GROUP_PROTOCOL")
            return
        if not member_id and not instance and version >= 4:
            self.pending[fresh] = self.now + session
            self.told.append(f"{client}: MEMBER_ID_REQUIRED")
            return
        if (not member_id and known is None) or (member_id in self.pending and not instance):
            id = member_id or fresh
            self.pending.pop(id, None)
            ends_at = self.now + NEW_MEMBER_MS
            member = NaiveMember(id, instance, session, rebalance, protocols, topics, ends_at, joining=client)
            self.members.append(member)
            self.leader = self.leader or id
            self.more_came = True
            self.go_on()
            return
        if not member_id:
            assert known is not None
            self.come_back(client, known, protocols, topics, session, rebalance, version, fresh)
            return
        if error := self.refused(member_id, instance):
            self.told.append(f"{client}: {error}")
            return
        assert known is not None
        same = known.protocols == protocols and known.topics == topics
        if same and (self.state == "CompletingRebalance" or (self.state == "Stable" and self.leader != member_id)):
            self.told.append(self.joined(client, known))
            return
        known.protocols, known.topics, known.session, known.rebalance = protocols, topics, session, rebalance
        self.wait(client, known)
        self.go_on()

    def come_back(
        self,
        client: str,
        member: NaiveMember,
        protocols: list[str],
        topics: str,
        session: int,
        rebalance: int,
        version: int,
        fresh: str,
    ) -> None:
        for waiter in (member.joining, member.syncing):
            if waiter:
                self.told.append(f"{waiter}: FENCED_INSTANCE_ID")
        led = self.leader == member.id
        member.id, member.joining, member.syncing, member.new, member.synced = fresh, None, None, False, True
        member.protocols, member.topics, member.session, member.rebalance = protocols, topics, session, rebalance
        member.ends_at = self.now + session
        self.members.remove(member)
        self.members.append(member)
        self.leader = fresh if led else self.leader
        if self.state in ("CompletingRebalance", "Stable") and all(each.synced for each in self.members):
            self.deadline = None
        if self.state == "Stable" and self.choose() == self.protocol:
            self.store()
            answer = self.joined(client, member)
            if led and version >= 9:
                answer += ", assigns nothing"
            elif led:
                answer = answer.partition(", leads")[0]
            self.told.append(answer)
            return
        self.wait(client, member)
        self.go_on()

    def sync(self, client: str, member_id: str, instance: str | None, generation: int, given: dict[str, str]) -> None:
        error = self.refused(member_id, instance, generation)
        if error or self.state == "PreparingRebalance":
            self.told.append(f"{client}: {error or 'REBALANCE_IN_PROGRESS'}")
            return
        member = self.find(member_id)
        assert member is not None
        member.synced = True
        if all(each.synced for each in self.members):
            self.deadline = None
        if self.state == "Stable":
            self.told.append(f"{client}: gets {member.assignment or 'nothing'}")
            return
        if member.syncing:
            self.told.append(f"{member.syncing}: REBALANCE_IN_PROGRESS")
        member.syncing = client
        if self.leader == member_id:
            for each in self.members:
                each.assignment = given.get(each.id, "")
                if each.syncing:
                    self.told.append(f"{each.syncing}: gets {each.assignment or 'nothing'}")
                    each.syncing, each.ends_at = None, self.now + each.session
            self.store()
            self.become("Stable")

    def beat(self, client: str, member_id: str, instance: str | None, generation: int) -> None:
        error = self.refused(member_id, instance, generation)
        if not error:
            self.hear(member_id)
            error = "REBALANCE_IN_PROGRESS" if self.state == "PreparingRebalance" else None
        self.told.append(f"{client}: {error or 'is alive'}")

    def commit(self, client: str, member_id: str, instance: str | None, generation: int) -> None:
        if generation < 0 and self.state == "Empty":
            error = None
        elif generation < 0 and not member_id and not instance:
            error = "UNKNOWN_MEMBER_ID"
        else:
            error = self.refused(member_id, instance, generation)
            if not error and self.state == "CompletingRebalance":
                error = "REBALANCE_IN_PROGRESS"
            if not error:
                self.hear(member_id)
        self.told.append(f"{client}: {error or 'commits'}")

    def leave(self, client: str, member_id: str, instance: str | None) -> None:
        before, error = len(self.members), None
        by_name = None if member_id else self.find_instance(instance)
        if member_id in self.pending:
            del self.pending[member_id]
        elif by_name:
            self.remove(by_name)
        else:
            error = "UNKNOWN_MEMBER_ID" if instance and not member_id else self.refused(member_id, instance)
            if not error:
                self.remove(self.find(member_id))
        if len(self.members) < before or self.state == "PreparingRebalance":
            self.go_on()
        self.told.append(f"{client}: {error or 'NONE'}")

    # --- time ---

    def pass_seconds(self, count: int) -> None:
        self.look_at_the_clock()  # a rebalance that only waits for pending member ids has no time at all
        for _ in range(count):
            self.now += SECOND
            self.look_at_the_clock()

    def look_at_the_clock(self) -> None:
        before = len(self.members)
        for id in [id for id, ends_at in self.pending.items() if ends_at <= self.now]:
            del self.pending[id]
        for member in list(self.members):
            if member.ends_at is not None and member.ends_at <= self.now:
                if (member.joining or member.syncing) and not member.new:
                    member.ends_at = None
                else:
                    self.remove(member)
        if len(self.members) < before or self.state == "PreparingRebalance":
            self.go_on()
        while self.deadline is not None and self.deadline <= self.now:
            self.time_is_up()

    def time_is_up(self) -> None:
        if self.state != "PreparingRebalance":
            self.deadline = None
            for member in [each for each in self.members if not each.synced]:
                self.remove(member)
            self.prepare()
        elif self.initial and self.more_came and self.left_to_wait:
            self.more_came = False
            step = min(self.delay, self.left_to_wait)
            self.left_to_wait -= step
            self.deadline = self.now + step
        else:
            self.complete()

    # --- rebalances ---

    def go_on(self) -> None:
        if self.state != "PreparingRebalance":
            self.prepare()
        elif (not self.initial or not self.members) and self.all_here():
            self.complete()

    def prepare(self) -> None:
        if self.state == "CompletingRebalance":
            for member in self.members:
                member.assignment = ""
                if member.syncing:
                    self.told.append(f"{member.syncing}: REBALANCE_IN_PROGRESS")
                    member.syncing, member.ends_at = None, self.now + member.session
        for member in self.members:
            member.synced = True
        self.initial = self.state == "Empty"
        self.become("PreparingRebalance")
        longest = max((each.rebalance for each in self.members), default=0)
        if self.initial:
            self.deadline = self.now + self.delay
            self.left_to_wait = max(longest - self.delay, 0)
            self.more_came = False
        elif self.all_here():
            self.complete()
        else:
            self.deadline = self.now + longest

    def complete(self) -> None:
        for member in [each for each in self.members if not each.joining and not each.instance]:
            self.remove(member)
        here = [each for each in self.members if each.joining]
        longest = max((each.rebalance for each in self.members), default=0)
        if self.members and not here:
            self.deadline = self.now + longest
            return
        self.generation += 1
        self.deadline = None
        if not self.members:
            self.protocol = None
            self.store()
            self.become("Empty")
            return
        if self.leader not in [each.id for each in here]:
            self.leader = here[0].id
        self.protocol = self.choose()
        self.become("CompletingRebalance")
        for member in self.members:
            if member.joining:
                self.told.append(self.joined(member.joining, member))
            member.joining, member.new, member.synced = None, False, False
            member.ends_at = self.now + member.session
        self.deadline = self.now + longest

    # --- what is ---

    def all_here(self) -> bool:
        return all(each.joining for each in self.members) and not self.pending

    def choose(self) -> str:
        common = [name for name in self.members[0].protocols if all(name in each.protocols for each in self.members)]
        votes = [next(name for name in each.protocols if name in common) for each in self.members]
        return max(sorted(common), key=votes.count)

    def find(self, member_id: str) -> NaiveMember | None:
        return next((each for each in self.members if each.id == member_id), None)

    def find_instance(self, instance: str | None) -> NaiveMember | None:
        return next((each for each in self.members if instance and each.instance == instance), None)

    def refused(self, member_id: str, instance: str | None, generation: int | None = None) -> str | None:
        if instance:
            static = self.find_instance(instance)
            if static is None:
                return "UNKNOWN_MEMBER_ID"
            if static.id != member_id:
                return "FENCED_INSTANCE_ID"
        if self.find(member_id) is None:
            return "UNKNOWN_MEMBER_ID"
        return "ILLEGAL_GENERATION" if generation not in (None, self.generation) else None

    def remove(self, member: NaiveMember | None) -> None:
        assert member is not None
        for waiter in (member.joining, member.syncing):
            if waiter:
                self.told.append(f"{waiter}: UNKNOWN_MEMBER_ID")
        self.members.remove(member)
        if self.leader == member.id:
            self.leader = self.members[0].id if self.members else None

    def wait(self, client: str, member: NaiveMember) -> None:
        if member.joining:
            self.told.append(f"{member.joining}: REBALANCE_IN_PROGRESS")
        member.joining = client

    def hear(self, member_id: str) -> None:
        member = self.find(member_id)
        assert member is not None
        member.ends_at = self.now + member.session

    def joined(self, client: str, member: NaiveMember) -> str:
        chosen = "" if self.protocol == "range" else f" with {self.protocol}"
        names = " ".join(each.name for each in self.members)
        return f"{client}: generation {self.generation}{chosen}" + (f", leads {names}" * (self.leader == member.id))

    def store(self) -> None:
        kept = [(each.id, each.assignment) for each in self.members]
        self.stored = (self.generation, kept)
        shown = " ".join(f"{each.name}={each.assignment}" for each in self.members) or "empty"
        self.told.append(f"stores generation {self.generation} {shown}")

    def become(self, state: str) -> None:
        self.state = state
