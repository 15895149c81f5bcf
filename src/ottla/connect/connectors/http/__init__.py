"""Servers that speak HTTP.

http_source.py   HttpSource: polls a URL, and remembers where the next answer begins
paging.py        what an answer holds, and where the next one begins
http_sink.py     HttpSink: the records of topics as requests
bodies.py        the URL and the body of a sink's request
server.py        requests, and what their failures mean
settings.py      Confluent's names of settings
"""
