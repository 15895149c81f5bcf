"""The connectors that come with Ottla.

files/        files and directories
jdbc/         tables of PostgreSQL and SQLite
postgresql/   change capture of PostgreSQL
s3/           buckets of Amazon S3, and of what speaks its protocol
search/       Elasticsearch and OpenSearch
datagen/      made-up data
delta/        tables of Delta Lake
http/         servers that speak HTTP
jms/          queues and topics of JMS brokers
mirror/       topics and groups of another cluster
spark/        data sources of PySpark
"""
