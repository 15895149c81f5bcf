"""State: stores, their keys and values.

store.py         a store during one batch
keys.py          keys of records, windows and sessions as bytes
values.py        values: JSON objects of the value columns
json_text.py     Arrow columns as JSON text
json_values.py   single values to and from JSON
"""
