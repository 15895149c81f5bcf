"""A compose file: brokers and three ZooKeeper servers on one machine, as several machines would have them."""

from collections.abc import Mapping

from ottla import __version__
from ottla.cli.generate.yaml_text import Data, format_yaml

ZOOKEEPERS = (1, 2, 3)
BROKERS_MAX = 5
"""The ports of the brokers on this machine are 19092, 29092, ..., and there is none above 65535."""

REPLICAS = 3


def write_compose(brokers: int, image: str, source: str | None) -> str:
    """`source`: the directory of a clone that the image is built from; None: it is built from the released package."""
    ids = range(1, brokers + 1)
    services: dict[str, Data] = {f"zk{number}": _build_zookeeper(number) for number in ZOOKEEPERS}
    services |= {f"broker{number}": _build_broker(number, brokers, image, source) for number in ids}
    volumes: dict[str, Data] = {f"broker{number}": {} for number in ids}
    return _write_header(brokers, source) + format_yaml({"services": services, "volumes": volumes})


def _write_header(brokers: int, source: str | None) -> str:
    file = "" if source is None else "-f deploy/docker/compose.yaml "
    addresses = ",".join(f"localhost:{find_port(number)}" for number in range(1, brokers + 1))
    return (
        f"# {'A broker' if brokers == 1 else f'{brokers} brokers'} and three ZooKeeper servers on one machine, "
        "written by `ottla generate compose`:\n"
        f"#   docker compose {file}up --build\n"
        f"# Clients on this machine use {addresses}.\n"
        "# Nobody authenticates: the ports are published on this machine only, and the network of the containers is\n"
        "# their own. Metrics are at port 9308 of each container. The first broker builds the image of all.\n"
    )


def find_port(number: int) -> int:
    return 9092 + 10_000 * number


def _build_zookeeper(number: int) -> Mapping[str, Data]:
    servers = " ".join(f"server.{each}=zk{each}:2888:3888;2181" for each in ZOOKEEPERS)
    return {
        "image": "zookeeper:3.9",
        "restart": "on-failure",
        "environment": {"ZOO_MY_ID": number, "ZOO_SERVERS": servers},
    }


def _build_broker(number: int, brokers: int, image: str, source: str | None) -> Mapping[str, Data]:
    port = find_port(number)
    replicas = min(brokers, REPLICAS)
    return {
        # The brokers have one image, so the first one builds it for all.
        **({"build": _build_image(source)} if number == 1 else {"pull_policy": "never"}),
        "image": image,
        "restart": "on-failure",
        "stop_grace_period": "60s",
        "depends_on": [f"zk{each}" for each in ZOOKEEPERS],
        "ports": [f"127.0.0.1:{port}:{port}"],
        "volumes": [f"broker{number}:/var/lib/ottla"],
        "command": [
            f"--node-id={number}",
            f"--zookeeper={','.join(f'zk{each}:2181' for each in ZOOKEEPERS)}/ottla",
            f"--set=listeners=INSIDE://0.0.0.0:9092,OUTSIDE://0.0.0.0:{port}",
            f"--set=advertised.listeners=INSIDE://broker{number}:9092,OUTSIDE://localhost:{port}",
            "--set=listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "--set=inter.broker.listener.name=INSIDE",
            "--allow-anonymous-network",
            "--metrics-port=9308",
            f"--set=default.replication.factor={replicas}",
            f"--set=min.insync.replicas={max(replicas - 1, 1)}",
        ],
    }


def _build_image(source: str | None) -> Mapping[str, Data]:
    if source is not None:
        return {"context": source, "dockerfile": "deploy/docker/Dockerfile"}
    # The same as deploy/docker/Dockerfile, with the released package.
    lines = (
        "FROM python:3.12-slim",
        f"RUN pip install --no-cache-dir ottla=={__version__} "
        "&& useradd --system --create-home --home-dir /var/lib/ottla ottla",
        "USER ottla",
        "VOLUME /var/lib/ottla",
        "STOPSIGNAL SIGTERM",
        'ENTRYPOINT ["ottla", "up", "--data", "/var/lib/ottla"]',
    )
    return {"dockerfile_inline": "\n".join(lines) + "\n"}
