"""Access control. There is no authorizer yet: every client may do everything.

operations.py  operations on resources, as the protocol numbers and encodes them
principal.py   who a client is
"""
