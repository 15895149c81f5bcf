"""The doors to the machine: everything that a simulation replaces enters the broker through here.

clock.py       wall-clock time
threads.py     work that would block the event loop
background.py  work that is repeated until the broker stops
"""
