"""Measurements of the broker beside a real Apache Kafka; `python -m benchmarks.broker` runs them."""
