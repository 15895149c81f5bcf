"""Client telemetry (KIP-714): clients push their own metrics to the broker, which shows them among its metrics.

subscriptions.py which metrics are asked of which client
instances.py     the clients that push, and when they may
otlp.py          OpenTelemetry's format of metrics, as far as clients use it
series.py        the values that clients have pushed, in bounded number
telemetry.py     all of them together: what the two APIs do
"""
