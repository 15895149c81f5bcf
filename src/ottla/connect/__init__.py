"""Kafka Connect on Spark: connectors move rows between topics and other systems.

A connector is one Python class: a `Source` or a `Sink` (connector.py). A worker keeps connectors running and answers
Kafka Connect's REST API. The batches of a connector run as Spark jobs, each task in transactions of its
own.

connector.py    what a connector is: Source, Sink, and what they give and take
serving.py      a whole worker: REST server, herder, and the SparkContext of its connectors
errors.py       failures that a connector or a user can cause
data/           schemas and records
converters/     between the bytes of a topic and the values of records
transforms/     changes of single records on their way
settings/       declared settings, checked as Kafka Connect checks them
running/        runs a connector: rounds of Spark jobs in transactions
connectors/     the connectors that come with Ottla
plugins/        connectors, converters, transformations and predicates by their names; checks whole configurations
rest/           Kafka Connect's REST API
worker/         keeps connectors running and shares them out among workers
"""
