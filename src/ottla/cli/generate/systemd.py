"""A broker as a service of systemd: the unit, and the settings of a broker of a cluster."""

UNIT = """\
# A broker as a service, written by `ottla generate systemd`. Install Ottla into /opt/ottla (python3 -m venv /opt/ottla
# && /opt/ottla/bin/pip install ottla), create the user (useradd --system --home /var/lib/ottla {user}), write
# {config}, then
#   cp ottla.service /etc/systemd/system/ && systemctl daemon-reload && systemctl enable --now ottla
[Unit]
Description=Ottla broker
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={user}
ExecStart={program} up --config {config}
# SIGTERM to the broker alone: it hands its leadership over, then ends its own children.
KillMode=mixed
TimeoutStopSec=60
Restart=on-failure
RestartSec=2
LimitNOFILE=1000000
StateDirectory=ottla
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""

PROPERTIES = """\
# One broker of a cluster of three. The same file on every machine, with another broker.id and another address.
broker.id=1
zookeeper.connect=zk1:2181,zk2:2181,zk3:2181/ottla
listeners=PLAINTEXT://0.0.0.0:9092
# Whoever reaches port 9092 can do everything. Remove this line when you have set up SASL_SSL (docs/security.md).
allow.anonymous.network=true
advertised.listeners=PLAINTEXT://broker1.example.com:9092
log.dirs=/var/lib/ottla
broker.rack=a

# Topics survive the loss of one machine, and acks=all means two of them have the record.
default.replication.factor=3
min.insync.replicas=2

# Metrics for Prometheus, on the address of the first listener. Whoever reaches the port can read them.
#metrics.port=9308

# Security (docs/security.md): TLS, logins with SCRAM, access control. `ottla certificates` makes the files. This file
# then has a password: let only the broker's user read it. initial.scram.credentials counts at the first start.
#listeners=SASL_SSL://0.0.0.0:9093
#advertised.listeners=SASL_SSL://broker.example:9093
#ssl.keystore.type=PEM
#ssl.keystore.location=/etc/ottla/tls/broker.pem
#ssl.truststore.type=PEM
#ssl.truststore.location=/etc/ottla/tls/ca.pem
#sasl.enabled.mechanisms=SCRAM-SHA-512
#initial.scram.credentials=SCRAM-SHA-512=[name=admin,password=change-it]
#authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
#super.users=User:admin
"""


def write_unit(program: str, config: str, user: str) -> str:
    return UNIT.format(program=program, config=config, user=user)


def write_properties() -> str:
    return PROPERTIES
