"""The connectors that come with Ottla.

files/    files and directories
"""
