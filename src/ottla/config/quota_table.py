"""The table of broker settings about quotas and client telemetry, a part of the table of broker settings."""

from ottla.config.settings import INT, Setting, Settings, at_least


# fmt: off
class QuotaSettings(Settings):
    quota_window_num = Setting(
        INT, 11, at_least(1),
        doc="Windows over which the consumption of a client is measured, the current one included.",
    )
    quota_window_size_seconds = Setting(INT, 1, at_least(1), doc="Length of a window of client quotas.")
    controller_quota_window_num = Setting(
        INT, 11, at_least(1),
        doc="Windows of controller_mutation_rate: a client that was idle may change so many windows' worth at once.",
    )
    controller_quota_window_size_seconds = Setting(
        INT, 1, at_least(1),
        doc="Length of a window of controller_mutation_rate.",
    )
    metrics_quotas_max = Setting(
        INT, 1000, at_least(0),
        doc="Clients with series of their own among the metrics of each quota. It is not a setting of Kafka.",
    )
    telemetry_max_bytes = Setting(
        INT, 1_048_576, at_least(1),
        doc="Largest push of client metrics, compressed. Kafka accepts 0 too.",
    )
