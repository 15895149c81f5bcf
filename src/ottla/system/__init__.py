"""Access to the machine: the clock, threads and repeated work, so that a simulation can replace them.

clock.py       wall-clock time
threads.py     work that would block the event loop
background.py  work that is repeated until the broker stops
"""
