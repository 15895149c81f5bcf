"""State: stores, their keys and values, and the servers that keep them.

a batch    store.py         a store during one batch
           keys.py          keys of records, windows and sessions as bytes
           values.py        values: JSON objects of the value columns
           json_text.py     Arrow columns as JSON text
           json_values.py   single values to and from JSON
asking     client.py        asks a state server: the state as a kernel reads it
           protocol.py      requests and answers as bytes
           connections.py   frames over a socket
           assignments.py   stores as JSON
queries    views.py         stores as people ask for them
           remote_stores.py views of stores whose partitions are in state servers
           http.py          queries over HTTP
serving    server.py        the process: connections and their threads
           starting.py      starts it
           service.py       what it does with requests
           tailing.py       keeps a table at an offset of its topic
           changes.py       what the records of a topic do to a table
           tables.py        a table in RocksDB
"""
