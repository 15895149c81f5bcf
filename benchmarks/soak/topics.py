"""The topics that the clients of a soak write to and read. Few partitions: each remembers thousands of producers."""

TOPICS = tuple(f"soak-{number}" for number in range(6))
PARTITIONS = 2
