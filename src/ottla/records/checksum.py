"""CRC-32C: the function of the package `crc32c`, taken from the machine code in it.

Importing the package itself asks for its version, and for that loads what reads archives and mail: a tenth of the time
that a broker needs to start.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

Checksum = Callable[[bytes | bytearray | memoryview], int]


def _found() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    extension = PathFinder.find_spec("crc32c._crc32c", locations) if locations else None
    if extension is None or extension.loader is None:
        from crc32c import crc32c  # of a build that is laid out in another way

        return crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Checksum = module.crc32c
    return function


crc32c: Checksum = _found()
