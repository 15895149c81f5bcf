"""One module per API, named like the API in snake case. Each has `REQUIRES` and `handle(node, call)`.

records        produce, fetch, list_offsets, offset_for_leader_epoch, delete_records, describe_producers
topics         metadata, create_topics, create_partitions, delete_topics, describe_topic_partitions
brokers        api_versions, describe_cluster, describe_log_dirs, alter_replica_log_dirs, update_features,
               unregister_broker
replicas       elect_leaders, alter_partition_reassignments, list_partition_reassignments
settings       describe_configs, alter_configs, incremental_alter_configs, list_config_resources
groups         find_coordinator, join_group, sync_group, heartbeat, leave_group, consumer_group_heartbeat, list_groups,
               describe_groups, consumer_group_describe, delete_groups
offsets        offset_commit, offset_fetch, offset_delete, txn_offset_commit
transactions   init_producer_id, add_partitions_to_txn, add_offsets_to_txn, end_txn, write_txn_markers,
               list_transactions, describe_transactions
quotas         describe_client_quotas, alter_client_quotas
telemetry      get_telemetry_subscriptions, push_telemetry
logins         sasl_handshake, sasl_authenticate, describe_user_scram_credentials, alter_user_scram_credentials,
               create_delegation_token, renew_delegation_token, expire_delegation_token, describe_delegation_token
access control describe_acls, create_acls, delete_acls

`REQUIRES` says which rights a client needs (`ottla.security.rights`). A handler without it is not loaded.

`ottla.broker.handler_table` lists the modules with the versions that they answer, and imports each with the first
request of its API. A module whose name is not that of an API is a helper that handlers
share: `acl_messages`, `authorization`, `client_traits`, `config_changes`, `config_rights`, `deadlines`, `mutations`,
`new_leader`, `token_requests`. Produce and Fetch have a codec of their own, in `CODEC`, so that records are never
copied.
"""
