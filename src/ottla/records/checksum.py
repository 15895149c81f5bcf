"""CRC-32C: the function of the package `crc32c`, imported from its extension module.

Importing the package itself looks up its version, which loads modules for archives and mail: a tenth of the time that a
broker needs to start.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

Checksum = Callable[[bytes | bytearray | memoryview], int]


def _find_crc32c() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    extension = PathFinder.find_spec("crc32c._crc32c", locations) if locations else None
    if extension is None or extension.loader is None:
        from crc32c import crc32c  # a build with another layout

        return crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Checksum = module.crc32c
    return function


crc32c: Checksum = _find_crc32c()
