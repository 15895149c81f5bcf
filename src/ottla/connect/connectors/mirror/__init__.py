"""Topics and groups of another cluster, as MirrorMaker 2 copies them: same names, formats and settings.

mirror_source.py         MirrorSource: records, topics, their settings and ACLs, and the map of offsets
mirror_checkpoint.py     MirrorCheckpoint: offsets of groups, translated for the target
mirror_heartbeat.py      MirrorHeartbeat: a sign of life that is mirrored like any topic
policy.py                names of mirrored and internal topics; which topics are mirrored
offset_map.py            which offset of the target is which offset of the source
formats.py               the records of MirrorMaker 2's internal topics
clusters.py              asks both clusters about topics, settings, ACLs and groups
flows.py                 MirrorMaker 2's configuration file: clusters, and flows between them
timers.py                when something is due
mirror_settings.py       the settings of the three connectors
"""
