"""The table of broker settings that have an effect: types, defaults, limits, how they can be changed, what they do.

The attribute `node_id` is the setting `node.id`. Defaults are those of Kafka; where one differs its doc says so.
"""

import sys

from ottla.config.authorizer_table import AuthorizerSettings
from ottla.config.listeners import PROTOCOLS
from ottla.config.overrides import check_connection_limits
from ottla.config.quota_table import QuotaSettings
from ottla.config.security_table import SecuritySettings
from ottla.config.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    Setting,
    UpdateMode,
    at_least,
    between,
    each_of,
    one_of,
    one_of_any_case,
)
from ottla.config.topic import COMPRESSION_TYPES, LONG_MAX, TIMESTAMP_TYPES
from ottla.config.zookeeper_addresses import check_zookeeper_connect

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
PER_BROKER = UpdateMode.PER_BROKER
INT_MAX = (1 << 31) - 1
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


# fmt: off
# The class is a table: a setting is one line of type, default and limit, and one line that says what it does. One
# argument per line would make it half as long again and harder to compare.
class BrokerSettings(AuthorizerSettings, QuotaSettings, SecuritySettings):
    # Identity and location
    node_id = Setting(
        INT, 1, at_least(0),
        doc="Number of this broker, unique in the cluster. Alone it is 1 by default; Kafka has no default.",
    )
    broker_id = Setting(
        INT, -1, at_least(-1),
        doc="Old name of node.id, used if node.id is not set. -1: a number is generated, in a cluster with ZooKeeper.",
    )
    broker_id_generation_enable = Setting(
        BOOLEAN, True,
        doc="Whether a broker of a cluster without a number gets one, which its data directories keep.",
    )
    reserved_broker_max_id = Setting(
        INT, 1000, at_least(0),
        doc="Largest number that can be given to a broker. Those that are generated are above it.",
    )
    broker_rack = Setting(STRING, None, doc="Rack of this broker. The replicas of a partition are spread over racks.")
    log_dirs = Setting(
        LIST, None,
        doc="Data directories. The command line chooses one if neither this nor log.dir is set.",
    )
    log_dir = Setting(
        LIST, None,
        doc="Old name of log.dirs. It has no default; Kafka's is in /tmp, which a reboot empties.",
    )
    cordoned_log_dirs = Setting(
        LIST, (), mode=PER_BROKER,
        doc="Data directories that get no new replicas, or * for all. A broker with no other gets none (KIP-1066).",
    )
    zookeeper_connect = Setting(
        STRING, "", check_zookeeper_connect,
        doc="ZooKeeper servers of a cluster, host:port,.../path. Empty: this broker is a cluster of one.",
    )
    zookeeper_session_timeout_ms = Setting(
        INT, 6000, at_least(1),
        doc="Time without a message after which ZooKeeper considers a broker dead. Kafka's default is 18000.",
    )
    zookeeper_connection_timeout_ms = Setting(
        INT, None, at_least(1),
        doc="How long a start waits for ZooKeeper. Unset: the session time-out.",
    )
    zookeeper_ssl_client_enable = Setting(
        BOOLEAN, False,
        doc="TLS to ZooKeeper, with the stores of zookeeper.ssl.*, which are PEM files.",
    )
    zookeeper_credentials = Setting(
        PASSWORD, None,
        doc="user:password for ZooKeeper's digest authentication. It is not a setting of Kafka.",
    )
    zookeeper_set_acl = Setting(
        BOOLEAN, False,
        doc="Let nobody read or write the nodes in ZooKeeper without zookeeper.credentials.",
    )
    # Listeners and connections
    listeners = Setting(
        LIST, ("PLAINTEXT://:9092",),
        doc="Addresses to listen on: NAME://host:port,... An empty host means all interfaces.",
    )
    advertised_listeners = Setting(
        LIST, None,
        doc="Addresses that clients get in Metadata. Unset: the address that the client connected to.",
    )
    listener_security_protocol_map = Setting(
        STRING, "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="Security protocol of each listener name.",
    )
    inter_broker_listener_name = Setting(STRING, None, doc="The listener that other brokers use.")
    security_inter_broker_protocol = Setting(
        STRING, "PLAINTEXT", one_of(*PROTOCOLS),
        doc="Security protocol by which the listener for other brokers is chosen, if it is not named.",
    )
    controller_listener_names = Setting(
        LIST, (),
        doc="Names of KRaft controller listeners. They are not opened: there is no KRaft in Ottla.",
    )
    connections_max_idle_ms = Setting(LONG, 600_000, doc="Time without traffic after which a connection is closed.")
    max_connections = Setting(
        INT, INT_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Limit of open connections, over all listeners.",
    )
    max_connections_per_ip = Setting(
        INT, 1000, at_least(0), mode=CLUSTER_WIDE,
        doc="Limit of open connections from one address. Unset, it is not for this machine itself. Kafka has none.",
    )
    max_connections_per_ip_overrides = Setting(
        STRING, "", check_connection_limits, mode=CLUSTER_WIDE,
        doc="Exceptions to max.connections.per.ip: address:count,... Host names are looked up at start only.",
    )
    max_connection_creation_rate = Setting(
        INT, INT_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Limit of new connections per second. Further connections have to wait.",
    )
    metrics_port = Setting(
        INT, None, between(0, 65535),
        doc="Port of the Prometheus endpoint, on the host of the first listener. 0: a free port; unset: no endpoint.",
    )
    metrics_topics_max = Setting(
        INT, 1000, at_least(0),
        doc="Limit of topics with metrics of their own. The others count in the totals only.",
    )
    metrics_partitions_max = Setting(
        INT, 1000, at_least(0),
        doc="Limit of partitions with metrics of their own; 0: none.",
    )
    metrics_groups_max = Setting(
        INT, 1000, at_least(0),
        doc="Limit of groups with metrics of their own, of those that the broker coordinates; 0: none.",
    )
    metrics_offsets_max = Setting(
        INT, 5000, at_least(0),
        doc="Limit of committed offsets (of a group in a partition) with metrics of their own, the lag among them.",
    )
    queued_max_request_bytes = Setting(
        LONG, 50_331_648,
        doc="Bytes of requests in memory above which the broker stops reading. -1: no limit, which is Kafka's default.",
    )
    socket_listen_backlog_size = Setting(
        INT, 1024, at_least(1),
        doc="Limit of connections that wait to be accepted; the system may have a lower one. Kafka's default is 50.",
    )
    socket_receive_buffer_bytes = Setting(
        INT, -1, between(1, INT_MAX, otherwise=-1),
        doc="SO_RCVBUF of connections. -1: the system adapts it. Kafka's 102400 limits the rate over long distances.",
    )
    socket_send_buffer_bytes = Setting(
        INT, -1, between(1, INT_MAX, otherwise=-1),
        doc="SO_SNDBUF of connections. -1: the system adapts it. Kafka's 102400 limits the rate over long distances.",
    )
    socket_request_max_bytes = Setting(
        INT, 104_857_600, at_least(1),
        doc="Largest request. The connection of a client that sends a larger one is closed.",
    )
    max_request_partition_size_limit = Setting(
        INT, 2000, at_least(1),
        doc="Limit of partitions in one DescribeTopicPartitions answer.",
    )
    request_timeout_ms = Setting(INT, 30_000, doc="How long this broker waits for the answer of another.")
    fetch_max_bytes = Setting(INT, 57_671_680, at_least(1024), doc="Limit of bytes in one Fetch answer.")
    max_incremental_fetch_session_cache_slots = Setting(
        INT, 1000, at_least(0),
        doc="Limit of incremental fetch sessions.",
    )
    # Topics
    auto_create_topics_enable = Setting(BOOLEAN, True, doc="Create a topic when a client asks for its metadata.")
    delete_topic_enable = Setting(BOOLEAN, True, doc="Allow topics to be deleted.")
    num_partitions = Setting(
        INT, 1, at_least(1),
        doc="Partitions of a topic that is created without a number of partitions.",
    )
    default_replication_factor = Setting(
        INT, 1,
        doc="Replicas of a topic that is created without a replication factor.",
    )
    compression_type = Setting(
        STRING, "producer", one_of(*COMPRESSION_TYPES), mode=CLUSTER_WIDE,
        doc="Default of compression.type of a topic.",
    )
    compression_gzip_level = Setting(
        INT, -1, between(1, 9, otherwise=-1), mode=CLUSTER_WIDE,
        doc="Default of compression.gzip.level of a topic.",
    )
    compression_lz4_level = Setting(
        INT, 9, between(1, 17), mode=CLUSTER_WIDE,
        doc="Default of compression.lz4.level of a topic.",
    )
    compression_zstd_level = Setting(
        INT, 3, between(-131072, 22), mode=CLUSTER_WIDE,
        doc="Default of compression.zstd.level of a topic.",
    )
    message_max_bytes = Setting(
        INT, 1_048_588, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of max.message.bytes of a topic.",
    )
    min_insync_replicas = Setting(
        INT, 1, at_least(1), mode=CLUSTER_WIDE,
        doc="Default of min.insync.replicas of a topic. The first broker of a new cluster sets it for all brokers.",
    )
    unclean_leader_election_enable = Setting(
        BOOLEAN, False, mode=CLUSTER_WIDE,
        doc="Default of unclean.leader.election.enable of a topic.",
    )
    # The log
    log_cleanup_policy = Setting(
        LIST, ("delete",), each_of("compact", "delete"), mode=CLUSTER_WIDE,
        doc="Default of cleanup.policy of a topic.",
    )
    log_flush_interval_messages = Setting(
        LONG, LONG_MAX, at_least(1), mode=CLUSTER_WIDE,
        doc="Default of flush.messages of a topic.",
    )
    log_flush_interval_ms = Setting(LONG, None, mode=CLUSTER_WIDE, doc="Default of flush.ms of a topic.")
    log_flush_scheduler_interval_ms = Setting(
        LONG, LONG_MAX,
        doc="How often flush.ms is checked. It is also the default of flush.ms if log.flush.interval.ms is not set.",
    )
    log_flush_offset_checkpoint_interval_ms = Setting(
        INT, 60_000, at_least(0),
        doc="How often the recovery points are written to disk.",
    )
    log_flush_start_offset_checkpoint_interval_ms = Setting(
        INT, 60_000, at_least(0),
        doc="How often the log start offsets are written to disk.",
    )
    log_index_interval_bytes = Setting(
        INT, 4096, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of index.interval.bytes of a topic.",
    )
    log_index_size_max_bytes = Setting(
        INT, 10_485_760, at_least(4), mode=CLUSTER_WIDE,
        doc="Default of segment.index.bytes of a topic.",
    )
    log_initial_task_delay_ms = Setting(
        LONG, 30_000, at_least(0),
        doc="Time after the start until the first retention check.",
    )
    log_message_timestamp_after_max_ms = Setting(
        LONG, 3_600_000, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of message.timestamp.after.max.ms of a topic.",
    )
    log_message_timestamp_before_max_ms = Setting(
        LONG, LONG_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of message.timestamp.before.max.ms of a topic.",
    )
    log_message_timestamp_type = Setting(
        STRING, "CreateTime", one_of(*TIMESTAMP_TYPES), mode=CLUSTER_WIDE,
        doc="Default of message.timestamp.type of a topic.",
    )
    log_preallocate = Setting(BOOLEAN, False, mode=CLUSTER_WIDE, doc="Default of preallocate of a topic.")
    log_retention_bytes = Setting(LONG, -1, mode=CLUSTER_WIDE, doc="Default of retention.bytes of a topic.")
    log_retention_check_interval_ms = Setting(
        LONG, 300_000, at_least(1),
        doc="How often retention is checked.",
    )
    log_retention_hours = Setting(
        INT, 168,
        doc="Default of retention.ms in hours, if neither log.retention.minutes nor log.retention.ms is set.",
    )
    log_retention_minutes = Setting(
        INT, None,
        doc="Default of retention.ms in minutes, if log.retention.ms is not set.",
    )
    log_retention_ms = Setting(LONG, None, mode=CLUSTER_WIDE, doc="Default of retention.ms of a topic.")
    log_roll_hours = Setting(INT, 168, at_least(1), doc="Default of segment.ms in hours, if log.roll.ms is not set.")
    log_roll_jitter_hours = Setting(
        INT, 0, at_least(0),
        doc="Default of segment.jitter.ms in hours, if log.roll.jitter.ms is not set.",
    )
    log_roll_jitter_ms = Setting(
        LONG, None, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of segment.jitter.ms of a topic.",
    )
    log_roll_ms = Setting(LONG, None, mode=CLUSTER_WIDE, doc="Default of segment.ms of a topic.")
    log_segment_bytes = Setting(
        INT, 1_073_741_824, at_least(1_048_576), mode=CLUSTER_WIDE,
        doc="Default of segment.bytes of a topic.",
    )
    log_segment_delete_delay_ms = Setting(
        LONG, 60_000, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of file.delete.delay.ms of a topic.",
    )
    log_cleaner_backoff_ms = Setting(
        LONG, 15_000, at_least(0), mode=CLUSTER_WIDE,
        doc="Pause of compaction if there is nothing to compact.",
    )
    log_cleaner_delete_retention_ms = Setting(
        LONG, 86_400_000, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of delete.retention.ms of a topic.",
    )
    log_cleaner_dedupe_buffer_size = Setting(
        LONG, 134_217_728, mode=CLUSTER_WIDE,
        doc="Memory for the keys of one compaction.",
    )
    log_cleaner_enable = Setting(BOOLEAN, True, doc="Compact topics whose cleanup.policy includes compact.")
    log_cleaner_io_buffer_load_factor = Setting(
        DOUBLE, 0.9, mode=CLUSTER_WIDE,
        doc="Share of log.cleaner.dedupe.buffer.size that is filled with keys.",
    )
    log_cleaner_io_buffer_size = Setting(
        INT, 524_288, at_least(0), mode=CLUSTER_WIDE,
        doc="Bytes that compaction reads at a time, or one batch if it is larger.",
    )
    log_cleaner_io_max_bytes_per_second = Setting(
        DOUBLE, sys.float_info.max, mode=CLUSTER_WIDE,
        doc="Limit of bytes that compaction reads and writes per second.",
    )
    log_cleaner_max_compaction_lag_ms = Setting(
        LONG, LONG_MAX, at_least(1), mode=CLUSTER_WIDE,
        doc="Default of max.compaction.lag.ms of a topic.",
    )
    log_cleaner_min_cleanable_ratio = Setting(
        DOUBLE, 0.5, between(0, 1), mode=CLUSTER_WIDE,
        doc="Default of min.cleanable.dirty.ratio of a topic.",
    )
    log_cleaner_min_compaction_lag_ms = Setting(
        LONG, 0, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of min.compaction.lag.ms of a topic.",
    )
    log_local_retention_bytes = Setting(
        LONG, -2, at_least(-2), mode=CLUSTER_WIDE,
        doc="Default of local.retention.bytes of a topic.",
    )
    log_local_retention_ms = Setting(
        LONG, -2, at_least(-2), mode=CLUSTER_WIDE,
        doc="Default of local.retention.ms of a topic.",
    )
    # Metadata and replication
    auto_leader_rebalance_enable = Setting(BOOLEAN, True, doc="Give leadership back to the preferred replica.")
    leader_imbalance_check_interval_seconds = Setting(
        LONG, 300, at_least(1),
        doc="How often it is checked whether preferred replicas lead.",
    )
    controlled_shutdown_enable = Setting(BOOLEAN, True, doc="Hand leadership over before the broker stops.")
    controlled_shutdown_max_retries = Setting(
        INT, 3, at_least(0),
        doc="How many times controlled.shutdown.retry.backoff.ms a stopping broker waits for others to lead.",
    )
    controlled_shutdown_retry_backoff_ms = Setting(
        LONG, 5000, at_least(0),
        doc="One wait of a stopping broker; a stop takes no longer than the time that the process is given.",
    )
    leader_replication_throttled_rate = Setting(
        LONG, LONG_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Bytes per second that a leader sends to followers listed in leader.replication.throttled.replicas.",
    )
    follower_replication_throttled_rate = Setting(
        LONG, LONG_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Bytes per second that a follower fetches for replicas in follower.replication.throttled.replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second = Setting(
        LONG, LONG_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Bytes per second that are copied when replicas move between data directories.",
    )
    num_replica_fetchers = Setting(
        INT, 1, at_least(1), mode=CLUSTER_WIDE,
        doc="Connections from a follower to each leader.",
    )
    replica_fetch_backoff_ms = Setting(INT, 1000, at_least(0), doc="Pause after a failed fetch of a follower.")
    replica_fetch_max_bytes = Setting(INT, 1_048_576, at_least(0), doc="Bytes per partition that a follower fetches.")
    replica_fetch_min_bytes = Setting(INT, 1, doc="Bytes that a follower waits for.")
    replica_fetch_response_max_bytes = Setting(INT, 10_485_760, at_least(0), doc="Bytes of one answer to a follower.")
    replica_fetch_wait_max_ms = Setting(INT, 500, doc="How long a follower's fetch may wait.")
    replica_high_watermark_checkpoint_interval_ms = Setting(
        LONG, 5000,
        doc="How often the high watermarks are written to disk.",
    )
    replica_lag_time_max_ms = Setting(
        LONG, 30_000,
        doc="A follower that has not caught up for this long leaves the ISR.",
    )
    replica_socket_timeout_ms = Setting(INT, 30_000, doc="Time-out of a follower's connection.")
    replica_selector_class = Setting(
        STRING, None, one_of(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
        doc="Chooses the replica from which a consumer reads: the leader, or one in the consumer's rack (KIP-392).",
    )
    # Groups and offsets
    group_initial_rebalance_delay_ms = Setting(
        INT, 3000,
        doc="How long a new classic group waits for more members before its first rebalance.",
    )
    group_max_session_timeout_ms = Setting(
        INT, 1_800_000,
        doc="Longest session time-out of a member of a classic group.",
    )
    group_min_session_timeout_ms = Setting(INT, 6000, doc="Shortest session time-out of a member of a classic group.")
    group_max_size = Setting(INT, INT_MAX, at_least(1), doc="Limit of members of a classic group.")
    group_coordinator_rebalance_protocols = Setting(
        LIST, ("classic", "consumer", "streams"), each_of("consumer", "classic", "share", "streams"),
        doc="Group protocols that are enabled.",
    )
    group_consumer_assignors = Setting(
        LIST, ("uniform", "range"),
        doc="Server-side assignors of consumer groups; the first is the default.",
    )
    group_consumer_heartbeat_interval_ms = Setting(
        INT, 5000, at_least(1),
        doc="Heartbeat interval of the members of a consumer group.",
    )
    group_consumer_max_heartbeat_interval_ms = Setting(
        INT, 15_000, at_least(1),
        doc="Longest heartbeat interval that a group may set.",
    )
    group_consumer_min_heartbeat_interval_ms = Setting(
        INT, 5000, at_least(1),
        doc="Shortest heartbeat interval that a group may set.",
    )
    group_consumer_session_timeout_ms = Setting(
        INT, 45_000, at_least(1),
        doc="Session time-out of the members of a consumer group.",
    )
    group_consumer_max_session_timeout_ms = Setting(
        INT, 60_000, at_least(1),
        doc="Longest session time-out that a group may set.",
    )
    group_consumer_min_session_timeout_ms = Setting(
        INT, 45_000, at_least(1),
        doc="Shortest session time-out that a group may set.",
    )
    group_consumer_assignment_interval_ms = Setting(
        INT, 1000, at_least(0), mode=CLUSTER_WIDE,
        doc="Shortest time between two assignments of a consumer group.",
    )
    group_consumer_max_assignment_interval_ms = Setting(
        INT, 15_000, at_least(0),
        doc="Longest assignment interval that a group may set.",
    )
    group_consumer_min_assignment_interval_ms = Setting(
        INT, 0, at_least(0),
        doc="Shortest assignment interval that a group may set.",
    )
    group_consumer_max_size = Setting(INT, INT_MAX, at_least(1), doc="Limit of members of a consumer group.")
    group_consumer_migration_policy = Setting(
        STRING, "bidirectional", one_of_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
        doc="In which directions a group may change between the classic and the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms = Setting(
        INT, 600_000, at_least(10_000),
        doc="How often subscriptions by regular expression are matched again with all topics.",
    )
    offset_metadata_max_bytes = Setting(INT, 4096, doc="Largest metadata of a committed offset.")
    offsets_commit_timeout_ms = Setting(INT, 5000, at_least(1), doc="How long an offset commit may wait for replicas.")
    offsets_retention_check_interval_ms = Setting(
        LONG, 600_000, at_least(1),
        doc="How often expired offsets are removed.",
    )
    offsets_retention_minutes = Setting(
        INT, 10_080, at_least(1),
        doc="How long the offsets of an empty group are kept.",
    )
    offsets_topic_num_partitions = Setting(INT, 50, at_least(1), doc="Partitions of __consumer_offsets.")
    offsets_topic_replication_factor = Setting(
        SHORT, 3, at_least(1),
        doc="Replicas of __consumer_offsets. Created once so many brokers are alive; a broker alone has one.",
    )
    offsets_topic_segment_bytes = Setting(INT, 104_857_600, at_least(1), doc="segment.bytes of __consumer_offsets.")
    # Producers and transactions
    producer_id_expiration_ms = Setting(
        INT, 86_400_000, at_least(1), mode=CLUSTER_WIDE,
        doc="How long a partition keeps the state of an idle producer.",
    )
    producer_id_expiration_check_interval_ms = Setting(
        INT, 600_000, at_least(1),
        doc="How often the states of idle producers are removed.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Setting(
        INT, 10_000, at_least(1),
        doc="How often transactions that exceed their time-out are aborted.",
    )
    transaction_max_timeout_ms = Setting(
        INT, 900_000, at_least(1),
        doc="Longest time-out that a producer may set for its transactions.",
    )
    transaction_partition_verification_enable = Setting(
        BOOLEAN, True, mode=CLUSTER_WIDE,
        doc="Check that a partition belongs to the transaction before a batch is appended to it.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Setting(
        INT, 3_600_000, at_least(1),
        doc="How often expired transactional ids are removed.",
    )
    transactional_id_expiration_ms = Setting(
        INT, 604_800_000, at_least(1),
        doc="How long an idle transactional id is kept.",
    )
    transaction_state_log_min_isr = Setting(
        INT, 2, at_least(1),
        doc="min.insync.replicas of __transaction_state; no more than its replicas.",
    )
    transaction_state_log_num_partitions = Setting(INT, 50, at_least(1), doc="Partitions of __transaction_state.")
    transaction_state_log_replication_factor = Setting(
        SHORT, 3, at_least(1),
        doc="Replicas of __transaction_state. Created once so many brokers are alive; a broker alone has one.",
    )
    transaction_state_log_segment_bytes = Setting(
        INT, 104_857_600, at_least(1),
        doc="segment.bytes of __transaction_state.",
    )
