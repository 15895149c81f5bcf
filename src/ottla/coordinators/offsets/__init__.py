"""Committed offsets.

offsets.py   the offsets of the groups of one partition of `__consumer_offsets`
requests.py  decides about requests to commit, read and delete offsets
"""
