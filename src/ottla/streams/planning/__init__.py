"""From the logical topology to subtopologies.

plan.py   what the planner makes: plain data
"""
