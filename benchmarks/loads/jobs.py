"""Runs one job of a load generator in a process of its own, and reads how much CPU the broker spent meanwhile."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

from benchmarks import PROJECT
from benchmarks.peers.broker_process import Usage
from benchmarks.peers.ottla_broker import build_environment

JOB_SECONDS = 180

Values = dict[str, float]


class JobFailure(Exception):
    """The load generator failed: records are missing, refused or late. The message is what it printed."""


class Peer(Protocol):
    """What a load generator is pointed at: a broker, or a cluster of brokers."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...

    def usage(self) -> Usage: ...


def run_job(broker: Peer, job: str, **details: object) -> tuple[Values, float]:
    """Run a job of benchmarks.loads. Returns what it measured, and the CPU seconds of the broker meanwhile."""
    description = json.dumps({"job": job, "bootstrap": broker.bootstrap} | details)
    printed, cpu_seconds = run_command(broker, [sys.executable, "-m", "benchmarks.loads", description])
    result: Values = json.loads(printed)
    return result, cpu_seconds


def run_command(broker: Peer, command: Sequence[str]) -> tuple[str, float]:
    """Run a program that puts load on a broker. Returns what it printed, and the CPU seconds of the broker."""
    before = broker.usage().cpu_seconds
    try:
        done = subprocess.run(
            command, cwd=PROJECT, env=build_environment(), capture_output=True, text=True, timeout=JOB_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise JobFailure(f"{broker.name}, {command[-1]}: not done after {JOB_SECONDS} s") from None
    if done.returncode != 0:
        raise JobFailure(f"{broker.name}, {' '.join(command[-3:])}:\n{(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout, broker.usage().cpu_seconds - before
