"""The driver's loop and its tasks on Spark."""
