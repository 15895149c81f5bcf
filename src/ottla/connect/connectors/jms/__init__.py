"""Queues and topics of JMS brokers that speak STOMP, as ActiveMQ and Artemis do.

jms_source.py   JmsSource and ActiveMQSource: messages to a topic, each once
receiving.py    what a source has received and not yet acknowledged
jms_sink.py     JmsSink and ActiveMQSink: records of topics as messages
messages.py     messages as records and as frames of STOMP
session.py      a connection to a broker, through stomp.py
settings.py     Confluent's names of settings
"""
