"""The cluster's metadata: a log of changes and the image it replays into."""
