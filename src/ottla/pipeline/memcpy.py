"""`copy_bytes`: memcpy for numba kernels. A loop over the bytes would be several times slower."""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

_raw_copy: Any = cgutils.raw_memcpy


def _code(_: Any, target: Any, place: Any, source: Any, start: Any, length: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        of = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        _raw_copy(builder, builder.gep(to, [arguments[1]]), builder.gep(of, [arguments[3]]), arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


copy_bytes: Any = intrinsic(_code)
"""copy_bytes(target, place, source, start, length) copies between arrays of bytes. Only numba kernels can call it."""
