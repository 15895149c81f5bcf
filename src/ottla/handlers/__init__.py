"""One module per API, named like its folder in Kafka's schema: VERSIONS and handle(node, call).

`ottla.broker.handler_table` gathers them. A module whose name is not that of an API is a helper that handlers share. A
handler with a codec of its own (records without copies) names it in `CODEC`.
"""
