"""One broker, put together.

broker.py         the composition root: builds every part, starts and stops them in order, lists the background jobs
participation.py  what differs between a broker alone and a member of a cluster: the interface
alone.py          a broker that is a cluster of one
member.py         a broker of a cluster whose metadata is in a coordination store
lifecycle.py      keeps that broker registered
fencing.py        fences other brokers whose processes are gone
secured_listeners.py  the listeners with TLS or SASL: entrances, certificates, changed settings
server_settings.py  the settings of the server, from those of the broker
endpoints.py      the addresses that a broker registers for its listeners
isolation.py      a leader that cannot reach the store asks the other brokers whether it still leads
handover.py       a broker that stops serves until the others name the leaders that took over from it
node_ids.py       the id of a broker of a cluster: given, kept or generated
former_single.py  the data directory of a broker that ran alone, when it joins a cluster
node.py           the parts of this broker, typed: what a handler may use
call.py           one request as a handler sees it, and the kinds of answers that a connection can send
handler_table.py  the versions of every API, and its handler, loaded with the first request
dispatch.py       from the bytes of a request to the bytes of its answer
throttling.py     quotas around handlers: counts what requests consume, mutes connections
credentials.py    the users in the metadata, as authentication asks for them
access.py         the authorizer of a broker, and what it adds to the handlers
monitoring.py     the metrics port: the page, the watch of the event loop, metrics of clients
auditing.py       lines of the audit log for administrative requests
addresses.py      the address at which a client can reach a broker
faults.py         faults that a test injects
"""
