"""Made-up data.

datagen_source.py   DatagenSource: records that a schema describes, the same ones for the same seed
generating.py       values of an Avro schema, by its arg.properties
patterns.py         texts that match a pattern
quickstarts.py      schemas by name
"""
