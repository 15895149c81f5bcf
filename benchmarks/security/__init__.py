"""What security costs, beside Apache Kafka: TLS, logins, ACLs, quotas, and a flood of connections.

brokers.py  both brokers with a listener for each protocol, certificates and a user
loads.py    what is measured
floods.py   floods from other processes
"""
