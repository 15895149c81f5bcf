"""Declared settings: types, defaults, checks and documentation, with Kafka Connect's forms for validate.

definition.py    Setting and Settings: how settings are declared
parsing.py       text to values, by Kafka's rules and with Kafka's sentences for what is wrong
checks.py        the checks that many settings share
validation.py    all errors of a configuration at once, and the JSON that Kafka Connect answers with
connectors.py    the settings that every source or sink has
providers.py     ${file:...}, ${directory:...} and ${env:...}
redaction.py     keeps secrets out of log lines, traces and answers
"""
