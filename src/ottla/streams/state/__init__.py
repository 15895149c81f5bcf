"""State: stores as kernels see them.

store.py   a store during one batch
"""
