"""PostgreSQL: connections to it, and the capture of changes.

connecting.py   connections through ADBC, and what their failures mean
"""
