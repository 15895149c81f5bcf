"""Amazon S3, and what speaks its protocol.

s3_sink.py      S3Sink: records of topics as objects of a bucket, each record in exactly one object
s3_source.py    S3Source: the rows of objects to topics
ledger.py       how far the sink has written, in objects that are replaced only if nobody else has replaced them
bucket.py       the requests, and what their failures mean
settings.py     Confluent's names of settings, and the formats and partitioners that they name
"""
