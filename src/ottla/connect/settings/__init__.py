"""Declared settings: types, defaults, checks and documentation, with Kafka Connect's forms for validate.

definition.py    Setting and Settings: declare, parse, check
"""
