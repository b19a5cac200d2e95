"""Sixty-four bytes of a text at once: a number that has a bit for each byte, set where the byte is of some class.

Counting bytes is then counting bits. What depends on the bytes before is an addition, whose carry runs through them.
Vectors are LLVM's own: all is the same on every processor.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import extending
from numba.core import config, types
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import inner

F = TypeVar("F", bound=Callable[..., object])
BLOCK = 64  # bytes; as many beyond the last document are read
NONE, ONE, ALL, HIGHEST = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1), np.uint64(63)
_INLINED: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False, "forceinline": True}
_IS_PLAIN = vars(config)["DISABLE_JIT"]


def inlined(function: F) -> F:
    """As `compiled.inner`, and never called: an array is seven numbers to pass, which in a hot loop take longer than a
    small function.
    """
    return cast(F, numba.njit(**_INLINED)(function))


def _bytes_between(typing_context: Any, text: Any, at: Any, first: Any, beyond: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        index = ir.IntType(32)
        vector = ir.VectorType(ir.IntType(8), BLOCK)

        def repeated(byte: Any) -> Any:
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), byte, index(0))
            return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(index, BLOCK), [index(0)] * BLOCK))

        start = builder.gep(context.make_array(text)(context, builder, arguments[0]).data, [arguments[1]])
        block = builder.load(builder.bitcast(start, vector.as_pointer()), align=1)
        found = builder.icmp_unsigned("<=", builder.sub(block, repeated(arguments[2])), repeated(arguments[3]))
        return builder.bitcast(found, ir.IntType(BLOCK))

    return types.uint64(text, types.int64, types.uint8, types.uint8), generate


def _plain_bytes_between(text: NDArray[np.uint8], at: int, first: int, beyond: int) -> np.uint64:
    places = np.flatnonzero(text[at : at + BLOCK] - np.uint8(first) <= np.uint8(beyond))
    return np.uint64(sum(1 << place for place in places.tolist()))


def _eight_bytes(typing_context: Any, text: Any, at: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        start = builder.gep(context.make_array(text)(context, builder, arguments[0]).data, [arguments[1]])
        return builder.load(builder.bitcast(start, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(text, types.int64), generate


def _count_bits(typing_context: Any, bits: Any) -> Any:
    return types.int64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(*arguments)


def _first_bit(typing_context: Any, bits: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), generate


def _last_bit(typing_context: Any, bits: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zeros = builder.ctlz(arguments[0], context.get_constant(types.boolean, False))
        return builder.sub(context.get_constant(types.int64, BLOCK - 1), zeros)

    return types.int64(types.uint64), generate


bytes_between = cast(
    Callable[[NDArray[np.uint8], int, int, int], np.uint64],
    _plain_bytes_between if _IS_PLAIN else extending.intrinsic(_bytes_between),
)
"""Which of the 64 bytes at a place are a certain one, or one of so many beyond it."""
eight_bytes = cast(
    Callable[[NDArray[np.uint8], int], np.uint64],
    (lambda text, at: text[at : at + 8].copy().view(np.uint64)[0]) if _IS_PLAIN else extending.intrinsic(_eight_bytes),
)
"""The eight bytes at a place as a number, the first one lowest."""
count_bits = cast(
    Callable[[np.uint64], int], (lambda bits: int(bits).bit_count()) if _IS_PLAIN else extending.intrinsic(_count_bits)
)
first_bit = cast(  # 64 where there is none
    Callable[[np.uint64], int],
    (lambda bits: ((int(bits) | 1 << BLOCK) & -(int(bits) | 1 << BLOCK)).bit_length() - 1)
    if _IS_PLAIN
    else extending.intrinsic(_first_bit),
)
last_bit = cast(  # -1 where there is none
    Callable[[np.uint64], int],
    (lambda bits: int(bits).bit_length() - 1) if _IS_PLAIN else extending.intrinsic(_last_bit),
)


@inner
def bytes_in(text: NDArray[np.uint8], at: int, ranges: NDArray[np.uint8]) -> np.uint64:
    """Which of the 64 bytes at a place are in one of some ranges, shape (ranges, 2): a byte, and how many beyond it."""
    found = NONE
    for number in range(len(ranges)):
        found |= bytes_between(text, at, ranges[number, 0], ranges[number, 1])
    return found


@inner
def below(bit: int) -> np.uint64:
    """All bits below one; of bit 64 all."""
    return ALL if bit >= BLOCK else (ONE << np.uint64(bit)) - ONE


@inner
def run_through(run: np.uint64, start: np.uint64, carry: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The first bit behind each start that isn't of the run, the start itself included, and bits of the run that no
    start reaches; and the carry of a start that the block's end has not stopped, into the next block.
    """
    total = run + start
    reached = total + carry
    return reached, np.uint64(total < run) | np.uint64(reached < total)
