"""Elasticsearch and OpenSearch.

search_sink.py   ElasticsearchSink: the records of topics as documents
bulk.py          the body of a bulk request, and what its answer says about each record
cluster.py       the requests over HTTP, and what their failures mean
mappings.py      the mapping of an index from the schema of records
settings.py      Confluent's names of settings
"""
