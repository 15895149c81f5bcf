"""Kafka's protocol: messages, readers and writers."""
