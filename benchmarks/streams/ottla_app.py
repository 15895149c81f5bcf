"""The topologies of the comparison in `ottla.streams`, as a program that runs until it is terminated.

Keys and values are text, and results are JSON texts such as {"count": 7}, as on the other side.
"""

import argparse
from functools import partial

from ottla.streams import App, tumbling


def describe(name: str, app: App, source: str, table: str, output: str) -> None:
    from pyspark.sql import functions as F

    if name.startswith("table"):
        newest = app.table(source, key="string", value="string")
    else:
        rows = app.stream(source, key="string", value="string")
    match name:
        case "stateless":
            kept = rows.filter(~F.col("value").endswith("7"))
            kept.select(F.upper("value").alias("value")).to(output)
        case "count":
            rows.group_by_key().count(name="counts").to(output)
        case "window":
            rows.group_by_key().window(tumbling("1 minute")).count(name="counts").to(output)
        case "join":
            names = app.table(table, key="string", value="name string")
            rows.join(names, name="join-names").to(output)
        case "table-join":
            names = app.table(table, key="string", value="name string")
            newest.join(names, name="join-names").to(output)
        case "table-rekey":
            newest.group_by(F.substring("key", -2, 2).alias("group")).count(name="counts").to(output)
        case _:
            raise ValueError(name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.streams.ottla_app", description=(__doc__ or "").splitlines()[0])
    for each in ("topology", "app", "bootstrap", "state", "interval_ms", "input", "table", "output"):
        parser.add_argument(each)
    given = parser.parse_args()
    make = partial(App, given.app, bootstrap=given.bootstrap, master="local[2]", state_dir=given.state)
    app = make(interval_ms=int(given.interval_ms)) if given.interval_ms else make()
    describe(given.topology, app, given.input, given.table, given.output)
    app.run()


if __name__ == "__main__":
    main()
