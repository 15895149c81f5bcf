"""Broker settings that have an effect, by Kafka's names: types, defaults, limits, who may change them, what they do.

An attribute is Kafka's name with `_` for `.`. Defaults are Kafka's; where ours differs the doc says so.
"""

import sys

from ottla.config.listeners import PROTOCOLS
from ottla.config.overrides import check_connections_per_address
from ottla.config.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    Setting,
    Settings,
    UpdateMode,
    at_least,
    between,
    each_of,
    one_of,
    one_of_any_case,
)
from ottla.config.topic import COMPRESSION_TYPES, LONG_MAX, TIMESTAMP_TYPES

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
INT_MAX = (1 << 31) - 1


# fmt: off
# The class is a table: a setting is one line of type, default and limit, and one line that says what it does. One
# argument per line would make it half as long again and harder to compare.
class BrokerSettings(Settings):
    # Identity and place
    node_id = Setting(
        INT, 1, at_least(0),
        doc="Number of this broker, unique in the cluster. Kafka has no default; here a single broker needs none.",
    )
    broker_id = Setting(INT, None, at_least(-1), doc="Old name of node.id; used when node.id is not set.")
    broker_rack = Setting(STRING, None, doc="Where this broker stands; replicas of a partition are spread over racks.")
    log_dirs = Setting(
        LIST, None,
        doc="Data directory. The command line chooses one when neither this nor log.dir is set.",
    )
    log_dir = Setting(
        LIST, None,
        doc="Old name of log.dirs. Kafka's /tmp default is left out: a reboot would empty it.",
    )
    zookeeper_connect = Setting(
        STRING, "",
        doc="ZooKeeper of a cluster, host:port,.../path. Empty: this broker is a cluster of one.",
    )
    zookeeper_session_timeout_ms = Setting(
        INT, 18_000, at_least(1),
        doc="Silence after which ZooKeeper takes a broker for dead.",
    )
    zookeeper_connection_timeout_ms = Setting(
        INT, None, at_least(1),
        doc="How long to try to reach ZooKeeper at start; unset: the session time-out.",
    )
    # Listeners and connections
    listeners = Setting(
        LIST, ("PLAINTEXT://:9092",),
        doc="Addresses to listen on: NAME://host:port,... An empty host is all interfaces. Read at start only.",
    )
    advertised_listeners = Setting(
        LIST, None,
        doc="Addresses that clients are told. Unset: the address that the client connected to.",
    )
    listener_security_protocol_map = Setting(
        STRING, ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS),
        doc="Security protocol of each listener name.",
    )
    inter_broker_listener_name = Setting(STRING, None, doc="The listener that other brokers use.")
    security_inter_broker_protocol = Setting(
        STRING, "PLAINTEXT", one_of(*PROTOCOLS),
        doc="Picks the listener for other brokers when it is not named.",
    )
    controller_listener_names = Setting(
        LIST, (),
        doc="KRaft's controller listeners. They are left out of listeners: there is no KRaft here.",
    )
    connections_max_idle_ms = Setting(LONG, 600_000, doc="A connection without a request for this long is closed.")
    max_connections = Setting(
        INT, INT_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Connections at once, over all listeners.",
    )
    max_connections_per_ip = Setting(
        INT, INT_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="Connections at once from one address.",
    )
    max_connections_per_ip_overrides = Setting(
        STRING, "", check_connections_per_address, mode=CLUSTER_WIDE,
        doc="Exceptions to max.connections.per.ip: address:count,...; a new host name holds from the next start on.",
    )
    max_connection_creation_rate = Setting(
        INT, INT_MAX, at_least(0), mode=CLUSTER_WIDE,
        doc="New connections per second; those beyond it wait until they are read.",
    )
    metrics_port = Setting(
        INT, None, between(0, 65535),
        doc="Port of the metrics for Prometheus, on the first listener's host. 0 takes a free one; unset: no metrics.",
    )
    metrics_topics_max = Setting(
        INT, 1000, at_least(0),
        doc="Topics with metrics of their own; the others count in the sums only.",
    )
    metrics_partitions_max = Setting(
        INT, 1000, at_least(0),
        doc="Partitions with metrics of their own; 0 switches them off.",
    )
    queued_max_requests = Setting(
        INT, 500, at_least(1),
        doc="Requests waiting at once before the broker stops reading more.",
    )
    queued_max_request_bytes = Setting(
        LONG, 50_331_648,
        doc="Bytes of requests in memory before the broker stops reading more; -1: no limit, as Kafka's default is.",
    )
    socket_listen_backlog_size = Setting(INT, 50, at_least(1), doc="Connections that wait to be accepted.")
    socket_receive_buffer_bytes = Setting(INT, 102_400, doc="SO_RCVBUF of client sockets; -1: the system's default.")
    socket_send_buffer_bytes = Setting(INT, 102_400, doc="SO_SNDBUF of client sockets; -1: the system's default.")
    socket_request_max_bytes = Setting(
        INT, 104_857_600, at_least(1),
        doc="Largest request that is read; a larger one closes the connection.",
    )
    max_request_partition_size_limit = Setting(
        INT, 2000, at_least(1),
        doc="Partitions that one DescribeTopicPartitions answer lists.",
    )
    request_timeout_ms = Setting(INT, 30_000, doc="How long this broker waits for another one's answer.")
    fetch_max_bytes = Setting(INT, 57_671_680, at_least(1024), doc="Most bytes that one Fetch answers.")
    max_incremental_fetch_session_cache_slots = Setting(
        INT, 1000, at_least(0),
        doc="Fetch sessions that are remembered at once.",
    )
    # Topics
    auto_create_topics_enable = Setting(BOOLEAN, True, doc="Create a topic when a client first asks for it.")
    delete_topic_enable = Setting(BOOLEAN, True, doc="Allow topics to be deleted.")
    num_partitions = Setting(INT, 1, at_least(1), doc="Partitions of a topic that is created without a number.")
    default_replication_factor = Setting(INT, 1, doc="Replicas of a topic that is created without a number.")
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
        doc="Default of min.insync.replicas of a topic.",
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
        doc="How often logs are looked at for flush.ms; also flush.ms when nothing else is set.",
    )
    log_flush_offset_checkpoint_interval_ms = Setting(
        INT, 60_000, at_least(0),
        doc="How often recovery points are written.",
    )
    log_flush_start_offset_checkpoint_interval_ms = Setting(
        INT, 60_000, at_least(0),
        doc="How often log start offsets are written.",
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
        doc="Wait after start before the first retention and flush checks.",
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
        doc="How often segments are looked at for retention.",
    )
    log_retention_hours = Setting(
        INT, 168,
        doc="Default of retention.ms, in hours, when neither minutes nor ms are set.",
    )
    log_retention_minutes = Setting(INT, None, doc="Default of retention.ms, in minutes, when ms are not set.")
    log_retention_ms = Setting(LONG, None, mode=CLUSTER_WIDE, doc="Default of retention.ms of a topic.")
    log_roll_hours = Setting(INT, 168, at_least(1), doc="Default of segment.ms, in hours, when ms are not set.")
    log_roll_jitter_hours = Setting(
        INT, 0, at_least(0),
        doc="Default of segment.jitter.ms, in hours, when ms are not set.",
    )
    log_roll_jitter_ms = Setting(LONG, None, mode=CLUSTER_WIDE, doc="Default of segment.jitter.ms of a topic.")
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
        doc="Pause of compaction when there is nothing to do.",
    )
    log_cleaner_delete_retention_ms = Setting(
        LONG, 86_400_000, at_least(0), mode=CLUSTER_WIDE,
        doc="Default of delete.retention.ms of a topic.",
    )
    log_cleaner_dedupe_buffer_size = Setting(
        LONG, 134_217_728, mode=CLUSTER_WIDE,
        doc="Memory for the keys of one compaction.",
    )
    log_cleaner_enable = Setting(BOOLEAN, True, doc="Compact topics that ask for it.")
    log_cleaner_io_buffer_load_factor = Setting(
        DOUBLE, 0.9, mode=CLUSTER_WIDE,
        doc="How full the memory for keys may get, as a share of it.",
    )
    log_cleaner_io_buffer_size = Setting(
        INT, 524_288, at_least(0), mode=CLUSTER_WIDE,
        doc="Bytes that compaction reads at a time; more where a batch is larger.",
    )
    log_cleaner_io_max_bytes_per_second = Setting(
        DOUBLE, sys.float_info.max, mode=CLUSTER_WIDE,
        doc="Bytes that compaction reads and writes per second.",
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
    metadata_log_max_record_bytes_between_snapshots = Setting(
        LONG, 20_971_520, at_least(1),
        doc="Bytes of metadata log after which a snapshot replaces them.",
    )
    auto_leader_rebalance_enable = Setting(BOOLEAN, True, doc="Give leadership back to the preferred replica.")
    leader_imbalance_check_interval_seconds = Setting(LONG, 300, at_least(1), doc="How often leadership is balanced.")
    controlled_shutdown_enable = Setting(BOOLEAN, True, doc="Hand leadership over before stopping.")
    num_replica_fetchers = Setting(
        INT, 1, at_least(1), mode=CLUSTER_WIDE,
        doc="Connections to each leader that a follower fetches with.",
    )
    replica_fetch_backoff_ms = Setting(INT, 1000, at_least(0), doc="Pause after a failed fetch of a follower.")
    replica_fetch_max_bytes = Setting(INT, 1_048_576, at_least(0), doc="Bytes per partition that a follower asks for.")
    replica_fetch_min_bytes = Setting(INT, 1, doc="Bytes that a follower waits for.")
    replica_fetch_response_max_bytes = Setting(INT, 10_485_760, at_least(0), doc="Bytes of one answer to a follower.")
    replica_fetch_wait_max_ms = Setting(INT, 500, doc="How long a follower's fetch may wait.")
    replica_high_watermark_checkpoint_interval_ms = Setting(LONG, 5000, doc="How often high watermarks are written.")
    replica_lag_time_max_ms = Setting(
        LONG, 30_000,
        doc="A follower that has not caught up for this long leaves the ISR.",
    )
    replica_socket_timeout_ms = Setting(INT, 30_000, doc="Time-out of a follower's connection.")
    replica_selector_class = Setting(STRING, None, doc="How a consumer's nearest replica is found.")
    # Groups and offsets
    group_initial_rebalance_delay_ms = Setting(INT, 3000, doc="How long an empty group waits for more members.")
    group_max_session_timeout_ms = Setting(INT, 1_800_000, doc="Longest session time-out of a classic group's member.")
    group_min_session_timeout_ms = Setting(INT, 6000, doc="Shortest session time-out of a classic group's member.")
    group_max_size = Setting(INT, INT_MAX, at_least(1), doc="Members of a classic group.")
    group_coordinator_rebalance_protocols = Setting(
        LIST, ("classic", "consumer", "streams"), each_of("consumer", "classic", "share", "streams"),
        doc="Group protocols that are spoken.",
    )
    group_consumer_assignors = Setting(
        LIST, ("uniform", "range"),
        doc="Server-side assignors of consumer groups; the first is the default.",
    )
    group_consumer_heartbeat_interval_ms = Setting(
        INT, 5000, at_least(1),
        doc="Heartbeat interval of a consumer group's member.",
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
        doc="Session time-out of a consumer group's member.",
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
    group_consumer_max_size = Setting(INT, INT_MAX, at_least(1), doc="Members of a consumer group.")
    group_consumer_migration_policy = Setting(
        STRING, "bidirectional", one_of_any_case("disabled", "downgrade", "upgrade", "bidirectional"),
        doc="Whether a group may move between the classic and the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms = Setting(
        INT, 600_000, at_least(10_000),
        doc="How often regular expressions are matched again with all topics.",
    )
    offset_metadata_max_bytes = Setting(INT, 4096, doc="Largest text that a committed offset may carry.")
    offsets_commit_timeout_ms = Setting(INT, 5000, at_least(1), doc="How long an offset commit may wait for replicas.")
    offsets_retention_check_interval_ms = Setting(
        LONG, 600_000, at_least(1),
        doc="How often expired offsets are looked for.",
    )
    offsets_retention_minutes = Setting(INT, 10_080, at_least(1), doc="How long offsets of an empty group are kept.")
    offsets_topic_num_partitions = Setting(INT, 50, at_least(1), doc="Partitions of __consumer_offsets.")
    offsets_topic_replication_factor = Setting(
        SHORT, 3, at_least(1),
        doc="Replicas of __consumer_offsets; no more than there are brokers when it is created.",
    )
    offsets_topic_segment_bytes = Setting(INT, 104_857_600, at_least(1), doc="segment.bytes of __consumer_offsets.")
    group_share_delivery_count_limit = Setting(
        INT, 5, between(2, 10),
        doc="Attempts to deliver a record to a share group.",
    )
    group_share_heartbeat_interval_ms = Setting(
        INT, 5000, at_least(1),
        doc="Heartbeat interval of a share group's member.",
    )
    group_share_max_heartbeat_interval_ms = Setting(
        INT, 15_000, at_least(1),
        doc="Longest heartbeat interval that a share group may set.",
    )
    group_share_min_heartbeat_interval_ms = Setting(
        INT, 5000, at_least(1),
        doc="Shortest heartbeat interval that a share group may set.",
    )
    group_share_session_timeout_ms = Setting(
        INT, 45_000, at_least(1),
        doc="Session time-out of a share group's member.",
    )
    group_share_max_session_timeout_ms = Setting(
        INT, 60_000, at_least(1),
        doc="Longest session time-out that a share group may set.",
    )
    group_share_min_session_timeout_ms = Setting(
        INT, 45_000, at_least(1),
        doc="Shortest session time-out that a share group may set.",
    )
    group_share_max_size = Setting(INT, 200, between(1, 1000), doc="Members of a share group.")
    group_share_max_share_sessions = Setting(INT, 2000, at_least(1), doc="Share sessions that are remembered at once.")
    group_share_partition_max_record_locks = Setting(
        INT, 2000, between(100, 10000),
        doc="Records of a partition that a share group may hold at once.",
    )
    group_share_record_lock_duration_ms = Setting(
        INT, 30_000, between(1000, 3600000),
        doc="How long a member of a share group holds a record.",
    )
    group_share_max_record_lock_duration_ms = Setting(
        INT, 60_000, between(30000, 3600000),
        doc="Longest hold that a share group may set.",
    )
    group_share_min_record_lock_duration_ms = Setting(
        INT, 15_000, between(1000, 30000),
        doc="Shortest hold that a share group may set.",
    )
    share_coordinator_state_topic_num_partitions = Setting(
        INT, 50, at_least(1),
        doc="Partitions of __share_group_state.",
    )
    share_coordinator_state_topic_replication_factor = Setting(
        SHORT, 3, at_least(1),
        doc="Replicas of __share_group_state; no more than there are brokers.",
    )
    share_coordinator_state_topic_min_isr = Setting(
        SHORT, 2, at_least(1),
        doc="min.insync.replicas of __share_group_state; no more than its replicas.",
    )
    share_coordinator_state_topic_segment_bytes = Setting(
        INT, 104_857_600, at_least(1),
        doc="segment.bytes of __share_group_state.",
    )
    # Producers and transactions
    producer_id_expiration_ms = Setting(
        INT, 86_400_000, at_least(1), mode=CLUSTER_WIDE,
        doc="How long a partition remembers an idle producer.",
    )
    producer_id_expiration_check_interval_ms = Setting(
        INT, 600_000, at_least(1),
        doc="How often idle producers are looked for.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Setting(
        INT, 10_000, at_least(1),
        doc="How often overdue transactions are looked for.",
    )
    transaction_max_timeout_ms = Setting(
        INT, 900_000, at_least(1),
        doc="Longest time-out that a transaction may ask for.",
    )
    transaction_partition_verification_enable = Setting(
        BOOLEAN, True, mode=CLUSTER_WIDE,
        doc="Check that a partition belongs to the transaction before writing to it.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Setting(
        INT, 3_600_000, at_least(1),
        doc="How often expired transactional ids are looked for.",
    )
    transaction_two_phase_commit_enable = Setting(
        BOOLEAN, False,
        doc="Allow transactions that an outside coordinator ends.",
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
        doc="Replicas of __transaction_state; no more than there are brokers when it is created.",
    )
    transaction_state_log_segment_bytes = Setting(
        INT, 104_857_600, at_least(1),
        doc="segment.bytes of __transaction_state.",
    )
