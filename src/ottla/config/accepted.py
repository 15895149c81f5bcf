"""Settings of Apache Kafka that are accepted and have no effect, so that a server.properties works as it is.

One per line: name, type, Kafka's default (`-` is none, `""` is empty). Of a value, the type is checked; of a setting
that can be changed while the broker runs also the range, so that a change gets the answer that Kafka gives.
The first table has settings of Kafka 4.3; the second those that Kafka dropped, internal ones, and those of plug-ins,
which are described only if they are set. Four of the second do have an effect, where listeners are not set: host.name,
port and their advertised twins (`broker.py`).
"""

from ottla.config import settings
from ottla.config.settings import Kind, UpdateMode

_KINDS: dict[str, Kind[object]] = {
    kind.name: kind
    for kind in (
        settings.BOOLEAN,
        settings.INT,
        settings.LONG,
        settings.SHORT,
        settings.DOUBLE,
        settings.STRING,
        settings.LIST,
        settings.PASSWORD,
        settings.CLASS,
    )
}

PREFIXES = ("listener.name.", "config.providers.", "rlmm.config.", "rsm.config.", "metrics.jmx.", "kafka.metrics.")
"""Kafka accepts any name with these prefixes: settings of one listener, and of plug-ins."""

_KAFKA = """
add.partitions.to.txn.retry.backoff.max.ms int 100
add.partitions.to.txn.retry.backoff.ms int 20
alter.config.policy.class.name class -
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
background.threads int 10
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
client.quota.callback.class class -
config.providers list ""
controller.quorum.append.linger.ms int 25
controller.quorum.auto.join.enable boolean false
controller.quorum.bootstrap.servers list ""
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.max.bytes int 1048576
controller.quorum.fetch.snapshot.max.bytes int 1048576
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.request.timeout.ms int 2000
controller.quorum.retry.backoff.ms int 20
controller.quorum.voters list ""
controller.socket.timeout.ms int 30000
create.topic.policy.class.name class -
delete.records.purgatory.purge.interval.requests int 1
early.start.listeners list -
fetch.purgatory.purge.interval.requests int 1000
follower.fetch.last.tiered.offset.enable boolean false
group.coordinator.append.linger.ms int -1
group.coordinator.background.threads int 2
group.coordinator.cached.buffer.max.bytes int 1048588
group.coordinator.threads int 4
group.share.assignment.interval.ms int 1000
group.share.assignors list simple
group.share.delivery.count.limit int 5
group.share.heartbeat.interval.ms int 5000
group.share.max.assignment.interval.ms int 15000
group.share.max.delivery.count.limit int 10
group.share.max.heartbeat.interval.ms int 15000
group.share.max.partition.max.record.locks int 4000
group.share.max.record.lock.duration.ms int 60000
group.share.max.session.timeout.ms int 60000
group.share.max.share.sessions int 2000
group.share.max.size int 200
group.share.min.assignment.interval.ms int 0
group.share.min.delivery.count.limit int 2
group.share.min.heartbeat.interval.ms int 5000
group.share.min.partition.max.record.locks int 100
group.share.min.record.lock.duration.ms int 15000
group.share.min.session.timeout.ms int 45000
group.share.partition.max.record.locks int 2000
group.share.record.lock.duration.ms int 30000
group.share.session.timeout.ms int 45000
group.streams.assignment.interval.ms int 1000
group.streams.heartbeat.interval.ms int 5000
group.streams.initial.rebalance.delay.ms int 3000
group.streams.max.assignment.interval.ms int 15000
group.streams.max.heartbeat.interval.ms int 15000
group.streams.max.session.timeout.ms int 60000
group.streams.max.size int 2147483647
group.streams.max.standby.replicas int 2
group.streams.min.assignment.interval.ms int 0
group.streams.min.heartbeat.interval.ms int 5000
group.streams.min.session.timeout.ms int 45000
group.streams.num.standby.replicas int 0
group.streams.session.timeout.ms int 45000
initial.broker.registration.timeout.ms int 60000
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list ""
log.cleaner.threads int 1
log.dir.failure.timeout.ms long 30000
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520
metadata.log.max.snapshot.interval.ms long 3600000
metadata.log.segment.bytes int 1073741824
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
num.io.threads int 8
num.network.threads int 3
num.recovery.threads.per.data.dir int 2
num.replica.alter.log.dirs.threads int -
offsets.load.buffer.size int 5242880
offsets.topic.compression.codec int 0
process.roles list ""
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500
remote.fetch.max.wait.ms int 500
remote.list.offsets.request.timeout.ms long 30000
remote.log.index.file.cache.total.size.bytes long 1073741824
remote.log.manager.copier.thread.pool.size int 10
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807
remote.log.manager.copy.quota.window.num int 11
remote.log.manager.copy.quota.window.size.seconds int 1
remote.log.manager.expiration.thread.pool.size int 10
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807
remote.log.manager.fetch.quota.window.num int 11
remote.log.manager.fetch.quota.window.size.seconds int 1
remote.log.manager.follower.thread.pool.size int 2
remote.log.manager.task.interval.ms long 30000
remote.log.manager.thread.pool.size int 2
remote.log.metadata.custom.metadata.max.bytes int 128
remote.log.metadata.manager.class.name string \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string -
remote.log.reader.max.pending.tasks int 100
remote.log.reader.threads int 10
remote.log.storage.manager.class.name string -
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string rsm.config.
remote.log.storage.system.enable boolean false
replica.socket.receive.buffer.bytes int 65536
replication.quota.window.num int 11
replication.quota.window.size.seconds int 1
sasl.client.callback.handler.class class -
sasl.kerberos.kinit.cmd string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long 60000
sasl.kerberos.principal.to.local.rules list DEFAULT
sasl.kerberos.service.name string -
sasl.kerberos.ticket.renew.jitter double 0.05
sasl.kerberos.ticket.renew.window.factor double 0.8
sasl.login.callback.handler.class class -
sasl.login.class class -
sasl.login.connect.timeout.ms int -
sasl.login.refresh.buffer.seconds short 300
sasl.login.refresh.min.period.seconds short 60
sasl.login.refresh.window.factor double 0.8
sasl.login.refresh.window.jitter double 0.05
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.mechanism.controller.protocol string GSSAPI
sasl.oauthbearer.assertion.algorithm string RS256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
security.providers string -
share.coordinator.append.linger.ms int -1
share.coordinator.cached.buffer.max.bytes int 1048588
share.coordinator.load.buffer.size int 5242880
share.coordinator.snapshot.update.records.per.snapshot int 500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 2
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.replication.factor short 3
share.coordinator.state.topic.segment.bytes int 104857600
share.coordinator.threads int 1
share.coordinator.write.timeout.ms int 5000
share.fetch.purgatory.purge.interval.requests int 1000
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
ssl.keymanager.algorithm string SunX509
ssl.provider string -
ssl.secure.random.implementation string -
ssl.trustmanager.algorithm string PKIX
transaction.state.log.load.buffer.size int 5242880
transaction.two.phase.commit.enable boolean false
"""

_HIDDEN = """
advertised.host.name string -
advertised.port int -
auto.include.jmx.reporter boolean true
control.plane.listener.name string -
controller.message.queue.size int 2147483647
controller.performance.always.log.threshold.ms long 2000
controller.performance.sample.period.ms long 60000
eligible.leader.replicas.enable boolean false
group.coordinator.new.enable boolean true
group.share.initialize.retry.interval.ms int 30000
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister
host.name string -
inter.broker.protocol.version string -
internal.metadata.delete.delay.millis long 60000
internal.metadata.log.segment.bytes int -
internal.metadata.max.batch.size.in.bytes int 8388608
kafka.csv.metrics.dir string kafka_metrics
kafka.csv.metrics.reporter.enabled boolean false
leader.imbalance.per.broker.percentage int 10
log.cleanup.interval.mins int 10
log.flush.interval.ms.per.topic string ""
log.message.downconversion.enable boolean true
log.message.format.version string -
log.message.timestamp.difference.max.ms long 9223372036854775807
log.retention.bytes.per.topic string ""
log.retention.hours.per.topic string ""
log.roll.hours.per.topic string ""
log.segment.bytes.per.topic string ""
metadata.log.segment.min.bytes int 8388608
offsets.commit.required.acks short -1
password.encoder.cipher.algorithm string AES/CBC/PKCS5Padding
password.encoder.key.length int 128
password.encoder.keyfactory.algorithm string -
port int -
quota.consumer.default long 9223372036854775807
quota.producer.default long 9223372036854775807
remote.log.index.file.cache.ttl.ms long 900000
remote.log.manager.task.retry.backoff.max.ms long 30000
remote.log.manager.task.retry.backoff.ms long 500
remote.log.manager.task.retry.jitter double 0.2
replica.lag.max.messages long 4000
server.max.startup.time.ms long 9223372036854775807
share.coordinator.cold.partition.snapshot.interval.ms int 300000
share.coordinator.state.topic.prune.interval.ms int 300000
unclean.leader.election.interval.ms long 300000
unstable.api.versions.enable boolean false
unstable.feature.versions.enable boolean false
unstable.metadata.versions.enable boolean false
zookeeper.clientCnxnSocket string -
zookeeper.max.in.flight.requests int 10
zookeeper.metadata.migration.enable boolean false
zookeeper.metadata.migration.min.batch.size int 200
zookeeper.ssl.cipher.suites list -
zookeeper.ssl.crl.enable boolean false
zookeeper.ssl.enabled.protocols list -
zookeeper.ssl.ocsp.enable boolean false
zookeeper.ssl.protocol string TLSv1.2
zookeeper.ssl.truststore.password password -
zookeeper.sync.time.ms int 2000
"""


# Settings that Kafka can change while a broker runs, except for those that name classes, files, secrets or addresses,
# with the least value that each can have.
_CHANGEABLE: dict[str, int | None] = {
    "background.threads": 1,
    "follower.fetch.last.tiered.offset.enable": None,
    "group.coordinator.cached.buffer.max.bytes": 524288,
    "group.share.assignment.interval.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "log.cleaner.threads": 0,
    "num.io.threads": 1,
    "num.network.threads": 1,
    "num.recovery.threads.per.data.dir": 1,
    "remote.fetch.max.wait.ms": 1,
    "remote.list.offsets.request.timeout.ms": 1,
    "remote.log.index.file.cache.total.size.bytes": 1,
    "remote.log.manager.copier.thread.pool.size": 1,
    "remote.log.manager.copy.max.bytes.per.second": 1,
    "remote.log.manager.expiration.thread.pool.size": 1,
    "remote.log.manager.fetch.max.bytes.per.second": 1,
    "remote.log.manager.follower.thread.pool.size": 1,
    "remote.log.reader.threads": 1,
    "share.coordinator.cached.buffer.max.bytes": 524288,
}
# The same, for settings that Kafka changes for one broker at a time. They are of Java's TLS and of Kerberos.
_CHANGEABLE_PER_BROKER = frozenset(
    (
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)


class Accepted:
    """A setting without effect: what is needed to check a value and to describe it."""

    __slots__ = ("default", "hidden", "kind", "mode", "name")

    def __init__(self, row: str, hidden: bool) -> None:
        self.name, kind, default = row.split(" ", 2)
        self.kind = _KINDS[kind]
        self.default = None if default == "-" else "" if default == '""' else default
        self.mode = UpdateMode.READ_ONLY
        if self.name in _CHANGEABLE:
            self.mode = UpdateMode.CLUSTER_WIDE
        elif self.name in _CHANGEABLE_PER_BROKER:
            self.mode = UpdateMode.PER_BROKER
        self.hidden = hidden

    @property
    def sensitive(self) -> bool:
        return self.kind.name == "password"

    def read(self, text: str) -> object:
        try:
            value = self.kind.parse(text.strip())
        except ValueError:
            raise settings.ConfigError(f"{self.name}: {text.strip()!r} is not {self.kind.phrase}") from None
        minimum = _CHANGEABLE.get(self.name)
        if minimum is not None and isinstance(value, int) and value < minimum:
            raise settings.ConfigError(f"{self.name}: {value} is below the minimum {minimum}")
        return value


ACCEPTED = {
    entry.name: entry
    for table, hidden in ((_KAFKA, False), (_HIDDEN, True))
    for entry in (Accepted(row, hidden) for row in table.splitlines() if row)
}
