"""Partitions, their replicas and the high watermark."""
