"""The connectors that come with Ottla.

files/        files and directories
postgresql/   change capture of PostgreSQL
"""
