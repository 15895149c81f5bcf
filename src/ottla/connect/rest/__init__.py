"""Kafka Connect's REST API: the same paths, status codes, bodies and messages.

routing.py              from a request to an endpoint: paths, methods and media types as Kafka Connect's server has them
bodies.py               what a request carries: JSON of a bounded size, read as Kafka Connect reads it
documents.py            what the worker says, as the JSON of answers, without secrets
connectors.py           /connectors
connector_plugins.py    /connector-plugins
worker_pages.py         /, /health and /admin/loggers
metrics.py              /metrics, for Prometheus
guard.py                who may ask: pages of other sites in a browser may not; access.control.allow.origin
basic_auth.py           users and passwords: rest.extension.classes
application.py          all of it as one ASGI application
listeners.py            the worker's properties that say where the server listens
handshakes.py           TLS handshakes of encrypted listeners, which are limited
server.py               listens, and answers in a thread of its own
"""
