"""Access to the machine: clock, threads, outgoing connections and repeated work. A simulation can replace them.

clock.py       wall-clock time
threads.py     work that would block the event loop
network.py     connections to other brokers
background.py  work that is repeated until the broker stops
"""
