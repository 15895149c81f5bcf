"""Every metric there is: name, kind, what it means, labels. `docs/metrics.md` is this table.

Names are those that the JMX exporter gives to Kafka's own metrics, so that dashboards and alerts know them; what Kafka
has no name for begins with `ottla_`.
"""

from ottla.observability.metrics import COUNTER, GAUGE, HISTOGRAM, Family


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, GAUGE, text, labels)


# Topics. Each also has a series without a label, the sum over all topics, which outlives them.
_TOPICS = "kafka_server_brokertopicmetrics"
MESSAGES_IN = _counter(f"{_TOPICS}_messagesin_total", "Records appended by producers.", "topic")
BYTES_IN = _counter(f"{_TOPICS}_bytesin_total", "Bytes of record batches appended by producers.", "topic")
BYTES_OUT = _counter(f"{_TOPICS}_bytesout_total", "Bytes of record batches sent to consumers.", "topic")
PRODUCES = _counter(f"{_TOPICS}_totalproducerequests_total", "Times a partition was produced to.", "topic")
FETCHES = _counter(f"{_TOPICS}_totalfetchrequests_total", "Times a partition was read for a fetch.", "topic")
FAILED_PRODUCES = _counter(
    f"{_TOPICS}_failedproducerequests_total", "Times a partition refused or could not acknowledge a batch.", "topic"
)
FAILED_FETCHES = _counter(
    f"{_TOPICS}_failedfetchrequests_total", "Times a fetch was answered with an error for a partition.", "topic"
)

# Requests
_REQUESTS = "kafka_network_requestmetrics"
REQUESTS = _counter(f"{_REQUESTS}_requests_total", "Requests handled.", "request", "version")
REQUEST_TIME = Family(
    f"{_REQUESTS}_totaltimems",
    HISTOGRAM,
    "Milliseconds from a request's last byte to its answer, waiting for records or replicas included.",
    ("request",),
)
REQUEST_ERRORS = _counter(f"{_REQUESTS}_errors_total", "Error codes told in answers.", "request", "error")
MALFORMED = _counter("ottla_requests_malformed_total", "Requests that could not be read; each ended its connection.")
UNSUPPORTED = _counter("ottla_requests_unsupported_total", "Requests of an API or version that is not spoken here.")

# Connections
_SOCKETS = "kafka_server_socketservermetrics"
CONNECTIONS = _gauge(f"{_SOCKETS}_connection_count", "Open connections.", "listener")
CONNECTIONS_MADE = _counter(f"{_SOCKETS}_connection_creation_total", "Connections accepted.")
CONNECTIONS_REFUSED = _counter(
    "ottla_connections_refused_total",
    "Connections refused, for there were too many: at once, of one address, or per second.",
)
SOCKET_BYTES_IN = _counter(f"{_SOCKETS}_incoming_byte_total", "Bytes received from clients.")
SOCKET_BYTES_OUT = _counter(f"{_SOCKETS}_outgoing_byte_total", "Bytes sent to clients.")
REQUEST_MEMORY = _gauge("ottla_request_memory_bytes", "Memory of requests that arrive or are being answered.")
ANSWER_MEMORY = _gauge("ottla_answer_memory_bytes", "Memory of answers that clients have not taken yet.")

# Partitions of this broker
_REPLICAS = "kafka_server_replicamanager"
PARTITIONS = _gauge(f"{_REPLICAS}_partitioncount", "Partitions with a replica on this broker.")
LEADERS = _gauge(f"{_REPLICAS}_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED = _gauge(
    f"{_REPLICAS}_underreplicatedpartitions", "Partitions led here with replicas that are not in sync."
)
UNDER_MIN_ISR = _gauge(
    f"{_REPLICAS}_underminisrpartitioncount", "Partitions led here with fewer in-sync replicas than they need."
)
OFFLINE_REPLICAS = _gauge(f"{_REPLICAS}_offlinereplicacount", "Replicas here whose data directory failed.")
OFFLINE_DIRECTORIES = _gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Data directories that are out of service until a restart."
)
DIRECTORY_OFFLINE = _gauge(
    "kafka_log_logmanager_logdirectoryoffline", "1 if the data directory is out of service.", "logdirectory"
)
FETCH_SESSIONS = _gauge(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Incremental fetch sessions that are open."
)
BROKER_STATE = _gauge("kafka_server_kafkaserver_brokerstate", "3 while running, 6 while stopping, as in Kafka.")

# Groups
_GROUPS, _GROUP_METADATA = "kafka_server_group_coordinator_metrics", "kafka_coordinator_group_groupmetadatamanager"
GROUPS = _gauge(f"{_GROUPS}_group_count", "Groups that this broker coordinates.", "protocol", "state")
ALL_GROUPS = _gauge(f"{_GROUP_METADATA}_numgroups", "Classic groups that this broker coordinates.")
PREPARING_GROUPS = _gauge(
    f"{_GROUP_METADATA}_numgroupspreparingrebalance", "Classic groups whose members are asked to join again."
)
COMPLETING_GROUPS = _gauge(
    f"{_GROUP_METADATA}_numgroupscompletingrebalance", "Classic groups that wait for their leader's assignment."
)
STABLE_GROUPS = _gauge(f"{_GROUP_METADATA}_numgroupsstable", "Classic groups whose members have their assignment.")
EMPTY_GROUPS = _gauge(f"{_GROUP_METADATA}_numgroupsempty", "Classic groups that only keep offsets.")
OFFSETS = _gauge(f"{_GROUP_METADATA}_numoffsets", "Committed offsets of all groups.")
MEMBERS = _gauge("ottla_group_members", "Members of all groups.", "protocol")
OFFSETS_COMMITTED = _counter(f"{_GROUPS}_offset_commit_count_total", "Offsets that were committed.")
OFFSETS_EXPIRED = _counter(f"{_GROUPS}_offset_expiration_count_total", "Offsets that nobody needed for too long.")
OFFSETS_DELETED = _counter(
    f"{_GROUPS}_offset_deletion_count_total", "Offsets that were deleted by themselves, with their group or topic."
)
CLASSIC_REBALANCES = _counter(
    f"{_GROUPS}_group_completed_rebalance_count_total", "Rebalances of classic groups that came to an assignment."
)
CONSUMER_REBALANCES = _counter(
    f"{_GROUPS}_consumer_group_rebalance_count_total", "Times that the epoch of a consumer group went up."
)
REBALANCE_TIME = Family(
    "ottla_group_rebalance_time_ms",
    HISTOGRAM,
    "Milliseconds until all members had their assignment; rebalances that follow each other count as one.",
    ("protocol",),
)
GROUPS_LOAD_TIME = _gauge(
    f"{_GROUPS}_partition_load_time_max", "Milliseconds that the slowest load of a partition took since the start."
)

# Transactions
_TRANSACTIONS, _MARKERS = "kafka_server_transaction_coordinator_metrics", "transactionmarkerchannelmanager"
TRANSACTIONAL_IDS = _gauge(
    "ottla_transactional_ids",
    "Transactional ids that this broker coordinates, by the state of their transaction.",
    "state",
)
TRANSACTIONS_ENDED = _counter(
    "ottla_transactions_ended_total",
    "Transactions that were committed, aborted, aborted after their time-out, or fenced by the next producer.",
    "outcome",
)
MARKER_TIME = Family(
    "ottla_transaction_marker_time_ms",
    HISTOGRAM,
    "Milliseconds from the end of a transaction until every partition of it was told.",
)
WAITING_MARKERS = _gauge(
    f"kafka_coordinator_transaction_{_MARKERS}_unknowndestinationqueuesize",
    "Partitions that could not be told of the end of a transaction, and are tried again.",
)
TRANSACTIONS_LOAD_TIME = _gauge(
    f"{_TRANSACTIONS}_partition_load_time_max",
    "Milliseconds that the slowest load of a partition took since the start.",
)
PRODUCER_IDS = _gauge(f"{_REPLICAS}_produceridcount", "Producers that partitions remember, once for each partition.")
LATE_TRANSACTIONS = _gauge(
    f"{_REPLICAS}_partitionswithlatetransactionscount",
    "Partitions with a transaction that is open for longer than it may be: it hangs.",
)
COORDINATED_PARTITIONS = _gauge(
    "ottla_coordinator_partitions",
    "Partitions of an internal topic that this broker coordinates, by whether they are loaded from their log.",
    "coordinator",
    "state",
)
COORDINATOR_OPERATIONS = _counter(
    "ottla_coordinator_operations_total",
    "Operations that the coordinators of groups and of transactions were asked for.",
    "coordinator",
    "operation",
)

# Logs: the first metrics.partitions.max partitions of this broker
LOG_SIZE = _gauge("kafka_log_log_size", "Bytes of a partition's log.", "topic", "partition")
LOG_START = _gauge("kafka_log_log_logstartoffset", "Offset of a partition's first record.", "topic", "partition")
LOG_END = _gauge("kafka_log_log_logendoffset", "Offset that a partition's next record gets.", "topic", "partition")
LOG_SEGMENTS = _gauge("kafka_log_log_numlogsegments", "Segments of a partition's log.", "topic", "partition")
TOPICS_LEFT_OUT = _gauge(
    "ottla_metrics_topics_left_out", "Topics without series of their own, being above metrics.topics.max."
)
PARTITIONS_LEFT_OUT = _gauge(
    "ottla_metrics_partitions_left_out", "Partitions without series of their own, being above metrics.partitions.max."
)

# Compaction
_CLEANER, _CLEANING = "kafka_log_logcleaner", "kafka_log_logcleanermanager"
UNCLEANABLE_PARTITIONS = _gauge(
    f"{_CLEANING}_uncleanable_partitions_count",
    "Logs that cannot be compacted; the broker's log says why.",
    "logdirectory",
)
UNCLEANABLE_BYTES = _gauge(
    f"{_CLEANING}_uncleanable_bytes", "Bytes that wait for compaction in logs that cannot be compacted.", "logdirectory"
)
MAX_DIRTY_PERCENT = _gauge(
    f"{_CLEANING}_max_dirty_percent", "Share of not yet compacted bytes in the log that has the largest, in percent."
)
SINCE_LAST_CLEANING = _gauge(
    f"{_CLEANING}_time_since_last_run_ms", "Milliseconds since it was last looked for something to compact."
)
MAP_USED_PERCENT = _gauge(
    f"{_CLEANER}_max_buffer_utilization_percent", "How full the memory for keys got in the last compaction, in percent."
)
RECOPY_PERCENT = _gauge(
    f"{_CLEANER}_cleaner_recopy_percent", "Bytes that the last compaction kept of those it read, in percent."
)
CLEAN_TIME = _gauge(f"{_CLEANER}_max_clean_time_secs", "Seconds that the last compaction took.")
COMPACTION_DELAY = _gauge(
    f"{_CLEANER}_max_compaction_delay_secs", "Seconds for which a record is above max.compaction.lag.ms at most."
)
COMPACTIONS = _counter("ottla_compactions_total", "Logs that were compacted.")
COMPACTION_READ = _counter("ottla_compaction_read_bytes_total", "Bytes of the segments that compactions read.")
COMPACTION_WRITTEN = _counter("ottla_compaction_written_bytes_total", "Bytes of the segments that compactions wrote.")
COMPACTION_RECORDS_READ = _counter("ottla_compaction_read_records_total", "Records that compactions read.")
COMPACTION_RECORDS_WRITTEN = _counter("ottla_compaction_written_records_total", "Records that compactions kept.")

# The cluster, as the controller sees it; the other brokers say 0
_CONTROLLER = "kafka_controller_kafkacontroller"
ACTIVE_CONTROLLER = _gauge(f"{_CONTROLLER}_activecontrollercount", "1 on the broker that is the controller.")
ACTIVE_BROKERS = _gauge(f"{_CONTROLLER}_activebrokercount", "Brokers that serve.")
FENCED_BROKERS = _gauge(f"{_CONTROLLER}_fencedbrokercount", "Brokers that are registered and do not serve.")
CLUSTER_TOPICS = _gauge(f"{_CONTROLLER}_globaltopiccount", "Topics of the cluster.")
CLUSTER_PARTITIONS = _gauge(f"{_CONTROLLER}_globalpartitioncount", "Partitions of the cluster.")
OFFLINE_PARTITIONS = _gauge(f"{_CONTROLLER}_offlinepartitionscount", "Partitions of the cluster that have no leader.")
METADATA_VERSION = _gauge("ottla_metadata_version", "Entries of the metadata log that this broker has applied.")

# The process
RESIDENT_MEMORY = _gauge("process_resident_memory_bytes", "Physical memory in use.")
VIRTUAL_MEMORY = _gauge("process_virtual_memory_bytes", "Address space in use.")
CPU_SECONDS = _counter("process_cpu_seconds_total", "Processor time used, in user and system mode.")
OPEN_FILES = _gauge("process_open_fds", "Open file descriptors, sockets included.")
OPEN_FILES_MAX = _gauge("process_max_fds", "File descriptors that may be open.")
START_TIME = _gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
BUILD = _gauge("ottla_build_info", "Always 1; the labels say what runs.", "version", "python")

FAMILIES: tuple[Family, ...] = tuple(value for value in globals().values() if isinstance(value, Family))
