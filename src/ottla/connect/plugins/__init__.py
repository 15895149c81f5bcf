"""The connectors, converters, transformations and predicates that a worker can run, by Kafka Connect's names.

registry.py     Plugin and Registry: names, short names, and how a class is found
built_in.py     the plug-ins that come with Ottla
loading.py      plug-ins of users: Python files of plugin.path, and module:Class
installed.py    all plug-ins of a worker: what the worker and the REST server ask them
checking.py     checks the whole configuration of a connector
overrides.py    which settings of Kafka clients a connector may override
"""
