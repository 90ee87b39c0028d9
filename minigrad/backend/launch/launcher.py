"""The base class of all backends that run kernels: memory, launches by name, launch shapes, and array layouts."""

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.capturing import safe_from_changes
from .. import devices
from ..kernels import Struct, StructArray, constant

LAYOUT = Struct("layout.cuh", "Layout")
ROW_THREADS = constant("common.cuh", "ROW_THREADS")
MAX_DIMS = LAYOUT.counts["shape"]
MAX_INT31 = 1 << 31  # the fast loops of layout.cuh compute indices and offsets in 31 bits: all must be below this
MAX_ELEMENTS_PER_TURN = 8  # elements that a thread of such a loop computes at once, at most
BOOL, INT64 = np.dtype(bool), np.dtype(np.int64)
TOTALS = np.dtype(np.float64)  # the dtype of arrays of Totals of common.cuh, which have 8 bytes for any float
MAX_WARP_ROW = 1024  # elements of the longest row that one warp computes; a longer row has a block
MAX_REREAD_ROW = 256  # elements of the longest row that a warp reads again, instead of keeping it in registers
WARP_BLOCK = 128  # threads of a block that computes several rows
MAX_HELD = 32  # elements of a row that a thread keeps in registers, at most
PRECISIONS = "highest", "high", "medium"  # float32 factors stay as they are, or are rounded to TF32 or bfloat16
DEFAULT_SHARED_BYTES = 48 << 10  # dynamic shared memory that a block may have without asking the driver for more


class Launcher:
    """The base of every backend that runs kernels. A subclass of runners/ provides memory and `_start`; the classes of
    this package provide the primitives.

    Arrays are NumPy's or CuPy's. The launch code uses what both kinds have: shape, strides, dtype, flags, base, views
    and transpositions. It computes nothing on them."""

    device = devices.device("cpu")
    captures = False  # True if steps can be captured on this backend: see replay/
    one_thread = False  # True if a block has one thread, as on a CPU
    tensor_cores = True
    precision = "highest"  # mg.set_float32_matmul_precision sets it for all backends
    array_type: Any = np.ndarray
    warns = True  # True if NumPy may warn of NaN and Inf in a primitive, so that callers must use quietly()

    if TYPE_CHECKING:

        def __getattr__(self, primitive: str) -> Any: ...  # families define them

    may_use_numpy = False  # True if NumPy computes a primitive where its rule allows it: see rules.py

    # -- what a subclass of runners/ provides

    def _start(self, file, entry, dtype, grid, block, shared, args):
        """Launch an entry point of kernels/<file>.cu compiled for a dtype."""
        raise NotImplementedError

    def spread(self, n):
        """(blocks, threads) for a kernel whose loop is grid_each() of common.cuh, over n elements."""
        raise NotImplementedError

    def partial_sums(self, n):
        """The number of blocks that sum a part of n elements each. It is the same on every machine of a kind, since the
        order of the additions decides the last bits."""
        return self.spread(n)[0]

    def tensor_core_mode(self, dtype):
        """The constant TENSOR of tensor.cuh for arrays of a dtype: 0 without tensor cores, 1 for float16 and TF32, 2 if
        they multiply float32 rounded to bfloat16."""
        kind = dtype.char if self.tensor_cores else ""  # each product asks: characters are compared faster than dtypes
        return PRECISIONS.index(self.precision) if kind == "f" else int(kind == "e")

    def pointer(self, x):
        """The address of an array's first element."""
        raise NotImplementedError

    # -- memory and launches, which a captured step records: see replay/recording.py

    empty: Any = staticmethod(np.empty)
    """empty(shape, dtype) returns a new compact array with undefined contents."""

    def launch(self, file, entry, dtype, grid, block, *args, shared=0):
        """Run an entry point.

        grid and block: ints, or tuples of up to three. args: arrays, None for a null pointer, Python numbers, which are
        converted to the types that the entry point declares, and bytes for a struct. shared: bytes of dynamic shared
        memory."""
        grid = grid if isinstance(grid, tuple) else (grid,)
        block = block if isinstance(block, tuple) else (block,)
        if 0 not in grid:
            self._start(file, entry, dtype, grid, block, shared, args)

    def launch_each(self, n, file, entry, dtype, *args):
        """Run an entry point whose loop is grid_each() of common.cuh, over n elements."""
        if n:
            blocks, threads = self.spread(n)
            self._start(file, entry, dtype, (blocks,), (threads,), 0, args)

    def launch_places(self, n, widest, file, entry, dtype, *args):
        """Run an entry point whose loop is map_places() of layout.cuh, over n elements.

        widest: the largest item size among the arrays, in bytes. On a GPU a thread moves 16 bytes of that array per
        turn, so fewer blocks are needed."""
        if n:
            blocks, threads = self.spread(n)
            if threads > 1:
                blocks = min(blocks, -(-n // (threads * min(MAX_ELEMENTS_PER_TURN, 16 // widest))))
            self._start(file, entry, dtype, (blocks,), (threads,), 0, args)

    def launch_rows(self, rows, n, file, entry, dtype, *args):
        """Run an entry point that works on rows, with the loops of rows.cuh: `rows` rows of n elements."""
        grid, block = self.rows(rows, n)
        if MAX_REREAD_ROW < n <= MAX_HELD * ROW_THREADS and n % 4 == 0 and real(dtype).itemsize == 4:
            threads = threads_for(n, MAX_HELD)
            if n > MAX_WARP_ROW:
                block = threads  # more threads would have no part of the row
            file += f" HELD={MAX_HELD} HELD_THREADS={max(WARP_BLOCK, threads)}"
        self.launch(file, entry, dtype, grid, block, *args)

    def rows(self, rows, n, each=4):
        """(grid, block) for `rows` rows of n elements. A block works on a long row, with `each` or more elements per
        thread; a warp or a part of a warp works on a short row, with 4 or more."""
        if n > MAX_WARP_ROW:
            return rows, self.row_threads(n, each)
        threads = min(32, max(2, threads_for(n)))
        return -(-rows // (WARP_BLOCK // threads)), (threads, WARP_BLOCK // threads)

    def row_threads(self, n, each=4):
        """The number of threads of a block that works on a row of n elements, with `each` or more elements per thread:
        a power of 2 from 32 to ROW_THREADS."""
        return min(ROW_THREADS, max(32, threads_for(n, each)))

    # -- values that may differ at each call of a captured step

    def parameter_buffer(self, values, shape, dtype):
        """A small array of this shape for kernels, filled with values(), such as the learning rates.

        In a captured step values() is called again before each replay, so it may return other numbers each time."""
        return self.from_numpy(np.array(values(), dtype))

    def random_stream(self, draw):
        """The first arguments of a kernel that draws random words, from a Draw: (array, key, offset). The array is
        None, or holds two words: a key that replaces `key`, and a number that is added to `offset`."""
        return None, draw.key, draw.offset

    def from_numpy(self, x):
        return safe_from_changes(x)

    def defer_check(self, check):
        """In a captured step, look at the result of this check of indices after each replay: see runners/checks.py."""

    def with_packed_structs(self, args):
        """The arguments of a kernel, each StructArray among them packed into an array of bytes."""
        return [self.packed_structs(x) if type(x) is StructArray else x for x in args]

    def packed_structs(self, table):
        """Pack a StructArray into an array of bytes."""
        rows = b"".join(table.struct.packed(row, self.pointer) for row in table.rows)
        return self.from_numpy(np.frombuffer(rows, np.uint8))

    # -- captured steps

    stop_flag: Any = None
    """An array of one number for kernels that change parameters: if it is not 0, an index was wrong, and they must do
    nothing. None: they need not ask."""

    alignment = 1  # bytes: a launch may depend on an array's address modulo this

    def raise_index_errors(self):
        """Raise IndexError if captured steps that have finished were given wrong indices: on a GPU."""

    def parameter_memory(self, shape, dtype):
        """A small array that the host fills before each replay, as (array of the host, array for kernels)."""
        array = np.zeros(shape, dtype)
        return array, array

    def memory(self, nbytes):
        """An array of bytes, for a captured step to compute in."""
        return np.empty(nbytes, np.uint8)

    def array_at(self, address, shape, dtype, strides, holder, writeable=True):
        """An array at an address. holder: the object that owns the memory, or None for a captured array."""
        return np.asarray(_Address(address, shape, dtype, strides, holder, writeable))

    def read_only(self, x):
        """Return x, a view that NumPy has made read-only. Of a captured array, return a view that is marked read-only:
        a captured array is always read-only to NumPy, so its flag tells nothing."""
        if has_memory(x):
            return x
        return self.array_at(self.pointer(x), x.shape, x.dtype, x.strides, None, writeable=False)

    # -- arrays

    def compact(self, x):
        """x if it is contiguous in row-major order, otherwise a copy that is."""
        return x if x.flags.c_contiguous else self.copy(x)

    def operand(self, x, dtype, shape=None, compact=True, optional=False):
        """Convert a further argument x of a primitive to the dtype that the first one has, and make it compact.
        optional: x may be None, and stays None.

        Raises ValueError if x has another shape than `shape`, since a kernel would read beyond its end, and TypeError
        for None, which would be a null pointer."""
        if x is None:
            if optional:
                return None
            raise TypeError(f"got None, needs an array of {'any shape' if shape is None else f'shape {shape}'}")
        if shape is not None and x.shape != shape:
            raise ValueError(f"got an array of shape {x.shape}, needs one of shape {shape}")
        if x.dtype != dtype:
            x = self.cast(x, dtype)
        return self.compact(x) if compact else x


def bytes_below(x):
    """The offset of an array's lowest address from its element 0, in bytes: negative if a stride is, otherwise 0."""
    return sum(min(0, step * (n - 1)) for n, step in zip(x.shape, x.strides))


def bytes_spanned(x):
    """The number of bytes from the first to the last byte of an array's elements."""
    return sum(abs(step) * (n - 1) for n, step in zip(x.shape, x.strides)) + x.itemsize if x.size else 0


def threads_for(n, each=4):
    """The number of threads, a power of 2, for n elements if a thread computes up to `each` of them."""
    return 1 << (max(1, -(-n // each)) - 1).bit_length()


class _Address:
    """An address that NumPy converts to an array.

    holder: the object that owns the memory; None for a captured array, which has no memory. NumPy must not write to
    that, so to NumPy it is read-only, whatever `writeable` says of the memory that it will have."""

    def __init__(self, address, shape, dtype, strides, holder, writeable):
        self.holder, self.writeable = holder, writeable
        read_only = holder is None or not writeable
        self.__array_interface__ = dict(
            shape=shape, strides=strides, typestr=dtype.str, data=(address, read_only), version=3
        )


def _owner(x):
    """The object at the end of the chain x.base that is not an array itself, such as an _Address or a mapped file.
    None if an array owns the memory."""
    owner = x.base
    while type(owner) is np.ndarray:
        owner = owner.base
    return owner


def has_memory(x):
    """False for a captured NumPy array, whose values come later."""
    owner = _owner(x)
    return type(owner) is not _Address or owner.holder is not None


def is_writeable(x):
    """True if the memory of an array may be changed; for a captured array, the memory that it will have."""
    if getattr(x.flags, "writeable", True):
        return True
    owner = x.base if type(x.base) is _Address else _owner(x)
    return type(owner) is _Address and owner.writeable


@functools.lru_cache(4096)
def layout(shape, itemsizes, *strides):
    """(number of elements, the struct Layout as bytes) for operands of one shape, with these strides in bytes."""
    dims = merged(shape, itemsizes, strides)
    if len(dims) > MAX_DIMS:
        raise ValueError(f"kernels take at most {MAX_DIMS} dims that cannot be merged, got shape {shape}")
    narrow, unused = is_narrow(dims), [0] * (MAX_DIMS - len(dims))
    columns = [[steps[k] for _, steps in dims] + unused for k in range(len(strides))]
    size = math.prod(shape)
    return size, LAYOUT(
        size=size,
        ndim=len(dims),
        narrow=narrow,
        run=vector_length(dims),
        shape=[n for n, _ in dims],
        reciprocals=[reciprocal(n) if narrow and n else 0 for n, _ in dims],
        strides=[step for column in columns for step in column],
    )


def merged(shape, itemsizes, strides):
    """Return [(size, [step in each operand, in elements]), …] for the dims. Neighbouring dims that are evenly spaced in
    every operand become one; dims of size 1 are left out."""
    dims: list = []
    for n, *in_bytes in zip(shape, *strides):
        if n == 1:
            continue
        steps = [step // size for step, size in zip(in_bytes, itemsizes)]
        if dims and all(outer == inner * n for outer, inner in zip(dims[-1][1], steps)):
            dims[-1] = (dims[-1][0] * n, steps)
        else:
            dims.append((n, steps))
    return dims or [(1, [1] * len(strides))]


def is_narrow(dims):
    """True if all indices of merged dims, and the offsets of all operands, fit into 31 bits."""
    sizes, steps = zip(*dims)
    if 0 in sizes:
        return True
    largest_offsets = [sum((n - 1) * abs(step) for n, step in zip(sizes, of)) for of in zip(*steps)]
    return max(math.prod(sizes), *largest_offsets) < MAX_INT31


def vector_length(dims):
    """Return the field `run` of a Layout: the length of the pieces into which the last dim is cut, 1, 2, 4 or 8. In
    each operand, the elements of a piece must be neighbours in memory, or all the same element."""
    *outer, (n, steps) = dims
    if steps[0] != 1 or any(step not in (0, 1) for step in steps):
        return 1
    sizes = [n, *(of[k] for _, of in outer for k, step in enumerate(steps) if step)] if outer else []
    return math.gcd(MAX_ELEMENTS_PER_TURN, *sizes)


def reciprocal(d):
    """A multiplier and a shift, packed into 64 bits, with which quotient() of layout.cuh replaces a division by d.

    d is in [1, 2^31)."""
    shift = (d - 1).bit_length()  # ⌈log2 d⌉
    return shift << 32 | -(-(1 << (31 + shift)) // d)


def broadcast_strides(x, shape):
    """The strides of x in bytes when it is broadcast to `shape`. The caller has checked that it can be."""
    if x.shape == shape:
        return x.strides
    extra = len(shape) - x.ndim
    return (0,) * extra + tuple(0 if n == 1 != m else s for n, m, s in zip(x.shape, shape[extra:], x.strides))


@functools.cache
def real(dtype):
    """The type R of the kernels: the dtype in which they compute on arrays of a dtype. It is float32 for float16."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype
