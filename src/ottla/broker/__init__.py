"""One broker, put together.

broker.py         the composition root: builds every part, starts and stops them in order
node.py           the parts of this broker, typed: what a handler may use
call.py           one request as a handler sees it, and the answers that a connection can send
handler_table.py  every handler by API key, gathered from the modules of `ottla.handlers`
dispatch.py       bytes of a request in, an answer out
addresses.py      where a client finds a broker
faults.py         misbehaviour that a test orders
"""
