"""State machines behind groups and transactions."""
