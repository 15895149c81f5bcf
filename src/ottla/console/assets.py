"""The static files of the console. Those of others are pinned by hash, so that a changed file is noticed."""

from os.path import dirname, join

STATIC = join(dirname(__file__), "static")
TEMPLATES = join(dirname(__file__), "templates")

THIRD_PARTY = {
    "htmx.min.js": "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f",
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of htmx 4.0.0 (Zero-Clause BSD) and uPlot 1.6.32 (MIT), whose licences are beside them."""
