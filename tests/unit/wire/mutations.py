"""Damaged copies of valid bytes. The same random generator gives the same copies."""

from collections.abc import Iterator
from random import Random

EXTREMES = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
    b"\x7f\xff",
    b"\xff\xfe",
    b"\x00",
    b"\xff",
)


def mutants(random: Random, data: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(random.randint(1, 4)):
            _damage(random, mutant)
        yield bytes(mutant)


def _damage(random: Random, data: bytearray) -> None:
    at = random.randint(0, len(data))
    match random.randrange(6):
        case 0:
            data[at : at + 1] = random.randbytes(1)
        case 1:
            extreme = random.choice(EXTREMES)
            data[at : at + len(extreme)] = extreme
        case 2:
            data[at:at] = random.choice(EXTREMES)
        case 3:
            del data[at:]
        case 4:
            del data[at : at + random.randint(1, 8)]
        case _:
            data[at:at] = data[random.randint(0, at) : at]
