"""Committed offsets.

offsets.py   the offsets of the groups of one partition of `__consumer_offsets`
requests.py  who may commit, read and delete which, and what is answered
"""
