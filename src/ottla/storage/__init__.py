"""The log on disk, in Kafka's file formats. Synchronous: no asyncio here."""
