"""Ottla's Connect beside Apache Kafka Connect.

__main__.py    the workloads, and the comparison of both
workers.py     a worker of either side as a child process: its REST API, its CPU, its memory
"""
