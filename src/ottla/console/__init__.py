"""The web console: what a cluster holds and does, in a browser. A client like any other, without state of its own.

It works with every Kafka cluster, through `ottla.client`. What it keeps in memory is a cached metadata snapshot and an
hour of samples for the charts. Pages are rendered on the server (`templates/`), so 64-bit numbers stay exact; htmx and
uPlot (`static/`) are third-party files, pinned by hash in `assets.py`. Nothing outside of this room imports it before a
user asks for the console.

    app.py             puts the pages together; what a page can use (`console.py`)
    calls.py           one request: its parameters, its form, its answer
    guarding.py        which requests are let in: Host, Origin, login, read-only mode; headers of every answer
    login.py           token and cookie
    assets.py          the static files and their hashes
    rendering.py       templates, and how numbers, sizes and times are written
    serving.py         the server, and the clock and the randomness that it hands to everything else
    connections.py     clients that threads borrow
    caching.py         values that are read again when they are too old
    history.py         an hour of samples
    sampling.py        takes the samples
    copying.py         views as commands and programs
    snippets.py        their pieces
    facts/             what is asked of the cluster: metadata, topics, groups, disks, records, apps
    views/             the pages, one module for each
"""
