"""The table of all metrics: name, kind, meaning, labels. `docs/metrics.md` shows it.

Names are those that the JMX exporter gives to Kafka's metrics, so that existing dashboards and alerts work. Metrics
that Kafka does not have begin with `ottla_`.
"""

from ottla.observability.metrics import COUNTER, GAUGE, HISTOGRAM, Family


def _make_counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, COUNTER, text, labels)


def _make_gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, GAUGE, text, labels)


# Topics. Each metric also has a series without a topic: the total over all topics, deleted ones included.
_TOPICS = "kafka_server_brokertopicmetrics"
MESSAGES_IN = _make_counter(f"{_TOPICS}_messagesin_total", "Records appended by producers.", "topic")
BYTES_IN = _make_counter(f"{_TOPICS}_bytesin_total", "Bytes of record batches appended by producers.", "topic")
BYTES_OUT = _make_counter(f"{_TOPICS}_bytesout_total", "Bytes of record batches sent to consumers.", "topic")
BYTES_REJECTED = _make_counter(
    f"{_TOPICS}_bytesrejected_total",
    "Bytes of record batches that were refused because they are larger than max.message.bytes.",
    "topic",
)
PRODUCES = _make_counter(
    f"{_TOPICS}_totalproducerequests_total", "Produce requests, counted once for each partition in them.", "topic"
)
FETCHES = _make_counter(
    f"{_TOPICS}_totalfetchrequests_total", "Fetch requests, counted once for each partition that was read.", "topic"
)
FAILED_PRODUCES = _make_counter(
    f"{_TOPICS}_failedproducerequests_total", "Batches that were refused or could not be acknowledged.", "topic"
)
FAILED_FETCHES = _make_counter(
    f"{_TOPICS}_failedfetchrequests_total", "Errors in fetch answers, counted once for each partition.", "topic"
)

# Requests
_REQUESTS = "kafka_network_requestmetrics"
REQUESTS = _make_counter(f"{_REQUESTS}_requests_total", "Requests handled.", "request", "version")
REQUEST_TIME = Family(
    f"{_REQUESTS}_totaltimems",
    HISTOGRAM,
    "Milliseconds from the last byte of a request to its answer, waiting for records or replicas included.",
    ("request",),
)
REQUEST_QUEUE_TIME = Family(
    f"{_REQUESTS}_requestqueuetimems",
    HISTOGRAM,
    "Milliseconds from the last byte of a request until its handler ran; 0 for those that are handled as they arrive.",
    ("request",),
)
REQUEST_LOCAL_TIME = Family(
    f"{_REQUESTS}_localtimems",
    HISTOGRAM,
    "Milliseconds in the handler of a request, until it had the answer or began to wait.",
    ("request",),
)
REQUEST_REMOTE_TIME = Family(
    f"{_REQUESTS}_remotetimems",
    HISTOGRAM,
    "Milliseconds for which a request waited: for records, replicas, group members, other brokers or a thread.",
    ("request",),
)
PURGATORY = _make_gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Produce requests that wait for replicas, for a check of their records or for a transaction coordinator, and Fetch "
    "requests that wait for records.",
    "delayedoperation",
)
REQUEST_ERRORS = _make_counter(f"{_REQUESTS}_errors_total", "Error codes in answers.", "request", "error")
MALFORMED = _make_counter(
    "ottla_requests_malformed_total", "Requests that could not be parsed. The connection is closed."
)
UNSUPPORTED = _make_counter("ottla_requests_unsupported_total", "Requests of an API or version that is not supported.")

# Connections
_SOCKETS = "kafka_server_socketservermetrics"
CONNECTIONS = _make_gauge(f"{_SOCKETS}_connection_count", "Open connections.", "listener")
CONNECTIONS_OF_STRIMZI = _make_gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "Open connections, under the name that Strimzi's dashboards use.",
    "listener",
)
CONNECTIONS_MADE = _make_counter(f"{_SOCKETS}_connection_creation_total", "Connections accepted.")
CONNECTIONS_REFUSED = _make_counter(
    "ottla_connections_refused_total",
    "Connections that were refused because of a limit: in total, per address or per second.",
)
SOCKET_BYTES_IN = _make_counter(f"{_SOCKETS}_incoming_byte_total", "Bytes received from clients.")
SOCKET_BYTES_OUT = _make_counter(f"{_SOCKETS}_outgoing_byte_total", "Bytes sent to clients.")
LOGINS = _make_counter(
    f"{_SOCKETS}_successful_authentication_total",
    "Clients that have authenticated with SASL, or finished their TLS handshake.",
    "listener",
)
FAILED_LOGINS = _make_counter(
    f"{_SOCKETS}_failed_authentication_total",
    "Clients that were not who they claimed to be, and TLS handshakes that failed.",
    "listener",
)
LOGINS_AGAIN = _make_counter(
    f"{_SOCKETS}_successful_reauthentication_total",
    "Clients that have authenticated again on an open connection.",
    "listener",
)
FAILED_LOGINS_AGAIN = _make_counter(
    f"{_SOCKETS}_failed_reauthentication_total", "Clients that have failed to authenticate again.", "listener"
)
EXPIRED_LOGINS = _make_counter(
    f"{_SOCKETS}_expired_connections_killed_count_total",
    "Connections that were closed because the client had not authenticated again in time.",
    "listener",
)
REQUEST_MEMORY = _make_gauge("ottla_request_memory_bytes", "Memory of requests that are arriving or being answered.")
ANSWER_MEMORY = _make_gauge("ottla_answer_memory_bytes", "Memory of answers that clients have not read yet.")

# The event loop, which is network threads and request handlers at once: two names for one number
HANDLER_IDLE = _make_gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "Share of the last minute in which the event loop used no processor, from 0 to 1.",
)
NETWORK_IDLE = _make_gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent", "The same: network and handlers share one event loop."
)
LOOP_DELAY = Family(
    "ottla_loop_delay_ms",
    HISTOGRAM,
    "Milliseconds by which the event loop was late for new work, measured once a second.",
)

# Quotas: clients that have one, the first metrics.quotas.max of each kind
_WHO = ("user", "client_id")
PRODUCE_RATE = _make_gauge("kafka_server_produce_byte_rate", "Bytes per second of Produce requests.", *_WHO)
PRODUCE_THROTTLE = _make_gauge(
    "kafka_server_produce_throttle_time", "Mean milliseconds for which a producer above its quota had to wait.", *_WHO
)
FETCH_RATE = _make_gauge("kafka_server_fetch_byte_rate", "Bytes per second of records sent to consumers.", *_WHO)
FETCH_THROTTLE = _make_gauge(
    "kafka_server_fetch_throttle_time", "Mean milliseconds for which a consumer above its quota had to wait.", *_WHO
)
REQUEST_RATE = _make_gauge("kafka_server_request_request_time", "Processor time of requests, in percent.", *_WHO)
REQUEST_THROTTLE = _make_gauge(
    "kafka_server_request_throttle_time",
    "Mean milliseconds for which a client had to wait after too much processor time.",
    *_WHO,
)
MUTATION_RATE = _make_gauge(
    "kafka_server_controllermutation_mutation_rate", "Partitions created or deleted per second.", *_WHO
)
MUTATION_TOKENS = _make_gauge(
    "kafka_server_controllermutation_tokens", "Partitions that may be created or deleted at once.", *_WHO
)
MUTATION_THROTTLE = _make_gauge(
    "kafka_server_controllermutation_throttle_time",
    "Mean milliseconds for which a client had to wait after too many new or deleted partitions.",
    *_WHO,
)
QUOTA_LIMIT = _make_gauge("ottla_quota_limit", "The quota that counts for a client.", "quota", *_WHO)
THROTTLED = _make_counter("ottla_quota_throttled_total", "How often a client was above its quota.", "quota", *_WHO)
QUOTA_CLIENTS = _make_gauge("ottla_quota_clients", "Clients whose consumption is measured.", "quota")
ADDRESS_RATE = _make_gauge(
    f"{_SOCKETS}_connection_accept_rate", "New connections per second of an address that has a quota.", "ip"
)
ADDRESS_REFUSED = _make_counter(
    "ottla_quota_connections_refused_total", "Connections refused because of connection_creation_rate."
)

# Metrics that clients push (KIP-714): at most 10,000 series, 1,000 of one client
_TELEMETRY, _PUSHED = "kafka_server_client_metrics", ("metric", "client_id", "client_instance_id", "attributes")
CLIENT_INSTANCES = _make_gauge(f"{_TELEMETRY}_instance_count", "Clients that push their metrics to this broker.")
UNKNOWN_SUBSCRIPTIONS = _make_counter(
    f"{_TELEMETRY}_unknown_subscription_request_count_total", "Pushes for a subscription that has changed meanwhile."
)
TELEMETRY_THROTTLED = _make_counter(
    f"{_TELEMETRY}_throttle_count_total", "Telemetry requests before the push interval was over."
)
TELEMETRY_PUSHES = _make_counter("ottla_client_metrics_pushes_total", "Pushes of client metrics that were accepted.")
TELEMETRY_REFUSED = _make_counter("ottla_client_metrics_refused_total", "Pushes of client metrics that were refused.")
CLIENT_SERIES_LEFT_OUT = _make_counter(
    "ottla_client_metrics_left_out_total", "Values that clients pushed beyond the limit of series."
)
CLIENT_GAUGE = _make_gauge("ottla_client_metric", "The last value of a metric of a client.", *_PUSHED)
CLIENT_SUM = _make_counter("ottla_client_metric_total", "The sum of what a client pushed of a metric.", *_PUSHED)

# Partitions of this broker
_REPLICAS = "kafka_server_replicamanager"
PARTITIONS = _make_gauge(f"{_REPLICAS}_partitioncount", "Partitions with a replica on this broker.")
LEADERS = _make_gauge(f"{_REPLICAS}_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED = _make_gauge(
    f"{_REPLICAS}_underreplicatedpartitions", "Partitions led by this broker with replicas that are not in sync."
)
UNDER_MIN_ISR = _make_gauge(
    f"{_REPLICAS}_underminisrpartitioncount",
    "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas.",
)
AT_MIN_ISR = _make_gauge(
    f"{_REPLICAS}_atminisrpartitioncount",
    "Partitions led by this broker with just min.insync.replicas in-sync replicas: one more failure stops acks=all.",
)
REASSIGNING = _make_gauge(
    f"{_REPLICAS}_reassigningpartitions", "Partitions led by this broker whose replicas are moving."
)
ISR_SHRINKS = _make_counter(f"{_REPLICAS}_isrshrinks_total", "In-sync replicas that this broker, as leader, removed.")
ISR_EXPANDS = _make_counter(f"{_REPLICAS}_isrexpands_total", "In-sync replicas that this broker, as leader, added.")
FAILED_ISR_UPDATES = _make_counter(
    f"{_REPLICAS}_failedisrupdates_total", "Changes of in-sync replicas that the metadata refused."
)
OFFLINE_REPLICAS = _make_gauge(
    f"{_REPLICAS}_offlinereplicacount", "Replicas on this broker whose data directory failed."
)
OFFLINE_DIRECTORIES = _make_gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Data directories that are out of service until a restart."
)
DIRECTORY_OFFLINE = _make_gauge(
    "kafka_log_logmanager_logdirectoryoffline", "1 if the data directory is out of service.", "logdirectory"
)
CORDONED_DIRECTORIES = _make_gauge(
    "kafka_log_logmanager_cordonedlogdirectorycount", "Data directories that get no new replicas (cordoned.log.dirs)."
)
DIRECTORY_CORDONED = _make_gauge(
    "kafka_log_logmanager_logdirectorycordoned", "1 if the data directory gets no new replicas.", "logdirectory"
)
DIRECTORY_FREE = _make_gauge(
    "ottla_log_directory_free_bytes", "Bytes that are free on the volume of a data directory.", "logdirectory"
)
DIRECTORY_TOTAL = _make_gauge(
    "ottla_log_directory_total_bytes", "Bytes of the volume of a data directory.", "logdirectory"
)
FETCH_SESSIONS = _make_gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Incremental fetch sessions that are open."
)
BROKER_STATE = _make_gauge("kafka_server_kafkaserver_brokerstate", "3 while running, 6 while stopping, as in Kafka.")

# Groups
_GROUPS, _GROUP_METADATA = "kafka_server_group_coordinator_metrics", "kafka_coordinator_group_groupmetadatamanager"
GROUPS = _make_gauge(f"{_GROUPS}_group_count", "Groups that this broker coordinates.", "protocol", "state")
ALL_GROUPS = _make_gauge(f"{_GROUP_METADATA}_numgroups", "Classic groups that this broker coordinates.")
PREPARING_GROUPS = _make_gauge(
    f"{_GROUP_METADATA}_numgroupspreparingrebalance", "Classic groups whose members are asked to join again."
)
COMPLETING_GROUPS = _make_gauge(
    f"{_GROUP_METADATA}_numgroupscompletingrebalance", "Classic groups that wait for the assignment of their leader."
)
STABLE_GROUPS = _make_gauge(f"{_GROUP_METADATA}_numgroupsstable", "Classic groups whose members have their assignment.")
EMPTY_GROUPS = _make_gauge(
    f"{_GROUP_METADATA}_numgroupsempty", "Classic groups without members, which only have offsets."
)
OFFSETS = _make_gauge(f"{_GROUP_METADATA}_numoffsets", "Committed offsets of all groups.")
MEMBERS = _make_gauge("ottla_group_members", "Members of all groups.", "protocol")
OFFSETS_COMMITTED = _make_counter(f"{_GROUPS}_offset_commit_count_total", "Offsets that were committed.")
OFFSETS_EXPIRED = _make_counter(f"{_GROUPS}_offset_expiration_count_total", "Offsets that expired.")
OFFSETS_DELETED = _make_counter(
    f"{_GROUPS}_offset_deletion_count_total", "Offsets that were deleted by request, or with their group or topic."
)
CLASSIC_REBALANCES = _make_counter(
    f"{_GROUPS}_group_completed_rebalance_count_total", "Completed rebalances of classic groups."
)
CONSUMER_REBALANCES = _make_counter(
    f"{_GROUPS}_consumer_group_rebalance_count_total", "Rebalances of consumer groups: raised group epochs."
)
REBALANCE_TIME = Family(
    "ottla_group_rebalance_time_ms",
    HISTOGRAM,
    "Milliseconds until all members had their assignment. Rebalances that follow each other count as one.",
    ("protocol",),
)
GROUPS_LOAD_TIME = _make_gauge(
    f"{_GROUPS}_partition_load_time_max", "Milliseconds of the slowest load of a partition since the start."
)

# Transactions
_TRANSACTIONS, _MARKERS = "kafka_server_transaction_coordinator_metrics", "transactionmarkerchannelmanager"
TRANSACTIONAL_IDS = _make_gauge(
    "ottla_transactional_ids",
    "Transactional ids that this broker coordinates, by the state of their transaction.",
    "state",
)
TRANSACTIONS_ENDED = _make_counter(
    "ottla_transactions_ended_total",
    "Transactions that were committed, aborted, aborted after their time-out, or fenced by the next producer.",
    "outcome",
)
MARKER_TIME = Family(
    "ottla_transaction_marker_time_ms",
    HISTOGRAM,
    "Milliseconds from the end of a transaction until its markers are in all its partitions.",
)
WAITING_MARKERS = _make_gauge(
    f"kafka_coordinator_transaction_{_MARKERS}_unknowndestinationqueuesize",
    "Transaction markers that could not be appended and are tried again.",
)
TRANSACTIONS_LOAD_TIME = _make_gauge(
    f"{_TRANSACTIONS}_partition_load_time_max",
    "Milliseconds of the slowest load of a partition since the start.",
)
PRODUCER_IDS = _make_gauge(f"{_REPLICAS}_produceridcount", "Producer states, counted once for each partition.")
LATE_TRANSACTIONS = _make_gauge(
    f"{_REPLICAS}_partitionswithlatetransactionscount",
    "Partitions with a hanging transaction: one that is open for longer than its time-out allows.",
)
COORDINATED_PARTITIONS = _make_gauge(
    "ottla_coordinator_partitions",
    "Partitions of an internal topic that this broker coordinates, by whether they are loaded from their log.",
    "coordinator",
    "state",
)
COORDINATOR_OPERATIONS = _make_counter(
    "ottla_coordinator_operations_total",
    "Operations that the coordinators of groups and of transactions were asked for.",
    "coordinator",
    "operation",
)

# Logs: the first metrics.partitions.max partitions of this broker
LOG_SIZE = _make_gauge("kafka_log_log_size", "Bytes of the log of a partition.", "topic", "partition")
LOG_START = _make_gauge("kafka_log_log_logstartoffset", "Log start offset of a partition.", "topic", "partition")
LOG_END = _make_gauge(
    "kafka_log_log_logendoffset", "Log end offset of a partition: the offset of its next record.", "topic", "partition"
)
LOG_SEGMENTS = _make_gauge("kafka_log_log_numlogsegments", "Segments of the log of a partition.", "topic", "partition")

# Partitions that this broker leads, under the names of kafka_exporter and of Kafka's own per-partition metrics
_WHERE = ("topic", "partition")
PARTITION_END = _make_gauge(
    "kafka_topic_partition_current_offset", "High watermark of a partition: where consumers read next.", *_WHERE
)
PARTITION_START = _make_gauge("kafka_topic_partition_oldest_offset", "First offset of a partition.", *_WHERE)
PARTITION_LEADER = _make_gauge("kafka_topic_partition_leader", "The id of the broker that leads a partition.", *_WHERE)
PARTITION_PREFERRED = _make_gauge(
    "kafka_topic_partition_leader_is_preferred", "1 if the first replica of a partition leads it.", *_WHERE
)
PARTITION_REPLICAS = _make_gauge("kafka_topic_partition_replicas", "Replicas of a partition.", *_WHERE)
PARTITION_ISR = _make_gauge("kafka_topic_partition_in_sync_replica", "In-sync replicas of a partition.", *_WHERE)
PARTITION_UNDER_REPLICATED = _make_gauge(
    "kafka_topic_partition_under_replicated_partition", "1 if replicas of a partition are not in sync.", *_WHERE
)
PARTITION_UNDER_MIN_ISR = _make_gauge(
    "kafka_cluster_partition_underminisr",
    "1 if a partition has fewer in-sync replicas than min.insync.replicas.",
    *_WHERE,
)
PARTITION_AT_MIN_ISR = _make_gauge(
    "kafka_cluster_partition_atminisr", "1 if a partition has just min.insync.replicas in-sync replicas.", *_WHERE
)

# Groups that this broker coordinates, under the names of kafka_exporter
_GROUP = "kafka_consumergroup"
GROUP_MEMBERS = _make_gauge(f"{_GROUP}_members", "Members of a group.", "consumergroup")
GROUP_OFFSET = _make_gauge(
    f"{_GROUP}_current_offset", "The offset that a group has committed in a partition.", "consumergroup", *_WHERE
)
GROUP_OFFSET_SUM = _make_gauge(
    f"{_GROUP}_current_offset_sum", "The sum of these offsets over the partitions of a topic.", "consumergroup", "topic"
)
GROUP_LAG = _make_gauge(
    f"{_GROUP}_lag", "Records of a partition that a group has not read yet.", "consumergroup", *_WHERE
)
GROUP_LAG_SUM = _make_gauge(
    f"{_GROUP}_lag_sum", "Records of a topic that a group has not read yet.", "consumergroup", "topic"
)
GROUP_LAG_SECONDS = _make_gauge(
    "ottla_consumergroup_lag_seconds",
    "Age of the first record of a partition that a group has not read; 0 if it has read everything.",
    "consumergroup",
    *_WHERE,
)
GROUPS_LEFT_OUT = _make_gauge(
    "ottla_metrics_groups_left_out",
    "Groups that lack series because of metrics.groups.max or metrics.offsets.max.",
)
TOPICS_LEFT_OUT = _make_gauge(
    "ottla_metrics_topics_left_out", "Topics without series of their own because of metrics.topics.max."
)
PARTITIONS_LEFT_OUT = _make_gauge(
    "ottla_metrics_partitions_left_out", "Partitions without series of their own because of metrics.partitions.max."
)

# Compaction
_CLEANER, _CLEANING = "kafka_log_logcleaner", "kafka_log_logcleanermanager"
UNCLEANABLE_PARTITIONS = _make_gauge(
    f"{_CLEANING}_uncleanable_partitions_count",
    "Logs that cannot be compacted. The log of the broker says why.",
    "logdirectory",
)
UNCLEANABLE_BYTES = _make_gauge(
    f"{_CLEANING}_uncleanable_bytes", "Bytes that wait for compaction in logs that cannot be compacted.", "logdirectory"
)
MAX_DIRTY_PERCENT = _make_gauge(
    f"{_CLEANING}_max_dirty_percent", "Largest share of bytes of a log that are not compacted yet, in percent."
)
SINCE_LAST_CLEANING = _make_gauge(
    f"{_CLEANING}_time_since_last_run_ms", "Milliseconds since compaction last looked for work."
)
MAP_USED_PERCENT = _make_gauge(
    f"{_CLEANER}_max_buffer_utilization_percent",
    "How much of the memory for keys the last compaction used, in percent.",
)
RECOPY_PERCENT = _make_gauge(
    f"{_CLEANER}_cleaner_recopy_percent", "Share of bytes that the last compaction kept, in percent."
)
CLEAN_TIME = _make_gauge(f"{_CLEANER}_max_clean_time_secs", "Seconds that the last compaction took.")
COMPACTION_DELAY = _make_gauge(
    f"{_CLEANER}_max_compaction_delay_secs", "Longest time in seconds by which a record exceeds max.compaction.lag.ms."
)
COMPACTIONS = _make_counter("ottla_compactions_total", "Logs that were compacted.")
COMPACTION_READ = _make_counter("ottla_compaction_read_bytes_total", "Bytes of the segments that compactions read.")
COMPACTION_WRITTEN = _make_counter(
    "ottla_compaction_written_bytes_total", "Bytes of the segments that compactions wrote."
)
COMPACTION_RECORDS_READ = _make_counter("ottla_compaction_read_records_total", "Records that compactions read.")
COMPACTION_RECORDS_WRITTEN = _make_counter("ottla_compaction_written_records_total", "Records that compactions kept.")

# Copying between brokers, and between data directories
_FETCHERS = "kafka_server_replicafetchermanager"
REPLICATION_BYTES_IN = _make_counter(f"{_TOPICS}_replicationbytesin_total", "Bytes of records copied from leaders.")
REPLICATION_BYTES_OUT = _make_counter(f"{_TOPICS}_replicationbytesout_total", "Bytes of records sent to followers.")
REASSIGNMENT_BYTES_IN = _make_counter(
    f"{_TOPICS}_reassignmentbytesin_total",
    "Bytes of records copied to replicas that a reassignment adds to this broker.",
)
REASSIGNMENT_BYTES_OUT = _make_counter(
    f"{_TOPICS}_reassignmentbytesout_total", "Bytes of records sent to replicas that a reassignment adds."
)
REPLICATION_THROTTLED = _make_counter(
    "ottla_replication_throttled_bytes_total",
    "Bytes of throttled replicas that were sent, fetched or moved between data directories, by Kafka's name of the "
    "throttle. Its rate is the byte-rate of Kafka.",
    "throttle",
)
MAX_LAG = _make_gauge(
    f"{_FETCHERS}_maxlag", "Records by which the slowest replica on this broker is behind its leader."
)
FAILED_FETCHES_OF_REPLICAS = _make_gauge(
    f"{_FETCHERS}_failedpartitionscount", "Replicas on this broker that cannot be copied at the moment."
)
FOLLOWED = _make_gauge("ottla_replication_followed_partitions", "Replicas on this broker that follow a leader.")
REPLICA_LAG = _make_gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "Records by which a replica on this broker is behind its leader.",
    "topic",
    "partition",
)

# The connection to ZooKeeper
STORE_CONNECTED = _make_gauge(
    "ottla_zookeeper_connected", "1 while the broker has a connection to ZooKeeper, or needs none because it is alone."
)
_SESSIONS = "kafka_server_sessionexpirelistener"
STORE_DISCONNECTS = _make_counter(
    f"{_SESSIONS}_zookeeperdisconnects_total", "How often the connection to ZooKeeper was lost."
)
STORE_EXPIRATIONS = _make_counter(
    f"{_SESSIONS}_zookeeperexpires_total",
    "How often the session with ZooKeeper has expired. The broker then leads nothing until it has registered again.",
)

# The cluster, as the controller sees it; 0 on the other brokers
_CONTROLLER = "kafka_controller_kafkacontroller"
ACTIVE_CONTROLLER = _make_gauge(f"{_CONTROLLER}_activecontrollercount", "1 on the broker that is the controller.")
ACTIVE_BROKERS = _make_gauge(f"{_CONTROLLER}_activebrokercount", "Brokers that are not fenced.")
FENCED_BROKERS = _make_gauge(f"{_CONTROLLER}_fencedbrokercount", "Brokers that are registered and fenced.")
CLUSTER_TOPICS = _make_gauge(f"{_CONTROLLER}_globaltopiccount", "Topics of the cluster.")
CLUSTER_PARTITIONS = _make_gauge(f"{_CONTROLLER}_globalpartitioncount", "Partitions of the cluster.")
OFFLINE_PARTITIONS = _make_gauge(
    f"{_CONTROLLER}_offlinepartitionscount", "Partitions of the cluster that have no leader."
)
PREFERRED_IMBALANCE = _make_gauge(
    f"{_CONTROLLER}_preferredreplicaimbalancecount",
    "Partitions of the cluster that their preferred replica does not lead; those without a leader are among them.",
)
UNCLEAN_ELECTIONS = _make_counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "How often this broker was elected as a leader that may lack acknowledged records.",
)
ELIGIBLE_ELECTIONS = _make_counter(
    "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total",
    "How often this broker was elected as an eligible leader replica: not in sync, and with all acknowledged records.",
)
ELECTIONS = _make_counter(
    "ottla_leader_elections_total", "How often this broker was elected as the leader of a partition."
)
ELECTION_TIME = Family(
    "kafka_controller_controllerstats_leaderelectionrateandtimems",
    HISTOGRAM,
    "Milliseconds from the decision of this broker to change leaders, such as those of a lost broker, until it is in "
    "force. One decision may move many partitions.",
)
BROKERS = _make_gauge("kafka_brokers", "Brokers that are not fenced. Only the controller has it.")
BROKER_INFO = _make_gauge(
    "kafka_broker_info",
    "Always 1. The labels have the id and the address of a broker: where it listens, if it advertises none.",
    "id",
    "address",
)
TOPIC_PARTITIONS = _make_gauge(
    "kafka_topic_partitions", "Partitions of a topic of the cluster. Only the controller has it.", "topic"
)
METADATA_VERSION = _make_gauge(
    "ottla_metadata_version", "Version of the last entry of the metadata log that this broker has applied."
)

# The process
RESIDENT_MEMORY = _make_gauge("process_resident_memory_bytes", "Physical memory in use.")
VIRTUAL_MEMORY = _make_gauge("process_virtual_memory_bytes", "Address space in use.")
CPU_SECONDS = _make_counter("process_cpu_seconds_total", "Processor time used, in user and system mode.")
DISK_READ = _make_gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that the process has read from disks, not from memory."
)
DISK_WRITTEN = _make_gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that the process has written to disks."
)
OPEN_FILES = _make_gauge("process_open_fds", "Open file descriptors, sockets included.")
OPEN_FILES_MAX = _make_gauge("process_max_fds", "File descriptors that may be open.")
START_TIME = _make_gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
BUILD = _make_gauge("ottla_build_info", "Always 1. The labels have the versions.", "version", "python")

FAMILIES: tuple[Family, ...] = tuple(value for value in globals().values() if isinstance(value, Family))
