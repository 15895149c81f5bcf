"""Stateful steps. `kernel.py` says what one is."""
