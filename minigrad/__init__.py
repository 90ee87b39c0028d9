"""minigrad: tensors, autograd and attention from scratch. See README.md. What a line calls x is the argument input=.

Tensors
    Tensor         An n-dimensional array that remembers how it was computed, so that gradients can flow back through it
    arange         The vector start, start + step, … below end; arange(n) counts from 0
    as_tensor      data as a Tensor of its shape: itself if dtype and device fit, else sharing an array's memory, …
    bernoulli      1 with the probability that input has there, or everywhere with probability p, else 0: of input's …
    empty          A Tensor of a shape with arbitrary values: whatever was in its memory
    empty_like     A Tensor with arbitrary values, of input's shape, dtype and device, or others
    eye            The identity matrix
    from_dlpack    A Tensor that shares the memory of another library's array (PyTorch, CuPy, JAX, …), of its shape, …
    from_numpy     A Tensor that shares the memory of a NumPy array, of its shape and dtype
    full           A Tensor of shape `size` filled with one value
    full_like      One value in input's shape, dtype and device, or others
    linspace       `steps` numbers from start to end, both included, evenly spaced
    multinomial    Indices drawn in proportion to the rows of input, (n,) or (N, n), each ≥ 0 -> (num_samples,) or …
    normal         Normal numbers of a mean and a standard deviation: two numbers and a size, or Tensors, which are …
    one_hot        int Tensor (…) -> int64 (…, num_classes): 1 at the class, else 0
    ones           Ones of a shape
    ones_like      Ones of input's shape, dtype and device, or others
    rand           Uniform in [0, 1)
    rand_like      Uniform in [0, 1), of input's shape, dtype and device, or others
    randint        Integers in [low, high), int64 or of a dtype: randint(low, high, size), or randint(high, size) …
    randn          Standard normal
    randn_like     Standard normal, of input's shape, dtype and device, or others
    randperm       range(n) in random order: (n,), int64
    tensor         A Tensor with a copy of data, of its shape: numbers, nested lists, arrays, Tensors
    tril_indices   Where the lower triangle of a (row, col) matrix is, up to diagonal `offset`: (2, n), rows and columns
    triu_indices   Where the upper triangle of a (row, col) matrix is, from diagonal `offset`: (2, n), rows and columns
    zeros          Zeros of a shape
    zeros_like     Zeros of input's shape, dtype and device, or others

Element by element
    abs            |x|
    add            x + alpha other
    cos            y = cos x
    div            x / other, true division: of integers too, in float32
    erf            y = 2/√π ∫₀ˣ exp(-t²) dt
    erfc           y = 1 - erf x
    exp            y = e^x
    floor          The largest integer ≤ x, in x's dtype; no gradient
    log            y = ln x
    mul            y = a b
    neg            -x
    pow            x ** exponent
    relu           max(x, 0)
    rsqrt          y = 1/√x
    sigmoid        y = 1 / (1 + e^-x)
    sign           -1, 0 or 1
    sin            y = sin x
    sqrt           y = √x
    sub            x - alpha other
    tanh           y = tanh x
    acos           y = the angle whose cosine is x, in [0, π]
    addcdiv        y = x + value tensor1 / tensor2
    addcmul        y = x + value tensor1 tensor2
    asin           y = the angle whose sine is x, in [-π/2, π/2]
    atan           y = the angle whose tangent is x, in (-π/2, π/2)
    atan2          The angle of the point (other, x), in [-π, π]
    ceil           y = the smallest integer ≥ x, in x's dtype
    cosh           y = (e^x + e^-x) / 2
    exp2           y = 2^x
    expm1          y = e^x - 1, accurate where that is tiny
    floor_divide   ⌊x / other⌋, as Python's //; no gradient
    fmod           x - other trunc(x / other), as C's: it has x's sign
    frac           y = x - trunc x, of x's sign
    lerp           y = x + weight (end - x): x for weight 0, end for 1
    log1p          y = ln(1 + x), accurate where x is tiny
    log2           y = the logarithm of x to base 2, exact for its powers
    log10          y = the logarithm of x to base 10, exact for its powers
    logaddexp      ln(e^x + e^other), without overflow and without losing the smaller
    logit          y = ln(x / (1 - x)), x limited to [eps, 1 - eps] first
    nan_to_num     y = x with these numbers for NaN, ∞ and -∞, by default 0 and the largest and smallest of the dtype
    reciprocal     y = 1 / x
    remainder      x - other ⌊x / other⌋, as Python's %: it has other's sign
    round          y = the nearest integer, the even one of two, or the nearest multiple of 10^-decimals
    sinh           y = (e^x - e^-x) / 2
    square         y = x²
    tan            y = sin x / cos x
    trunc          y = x without its fraction, in x's dtype
    absolute       another name of abs
    divide         another name of div
    true_divide    another name of div
    multiply       another name of mul
    negative       another name of neg
    subtract       another name of sub

Comparing and choosing
    clamp           x limited to [min, max]; either bound may be None
    eq              y = a == b, bool
    ge              y = a ≥ b, bool
    gt              y = a > b, bool
    isfinite        True where x is neither NaN nor infinite
    isinf           True where x is +∞ or -∞
    isnan           True where x is NaN
    le              y = a ≤ b, bool
    logical_and     y = a and b, bool
    logical_not     True where x is 0 or False
    logical_or      y = a or b, bool
    logical_xor     y = a or b but not both, bool
    lt              y = a < b, bool
    maximum         y = max(a, b)
    minimum         y = min(a, b)
    ne              y = a ≠ b, bool
    where           x where condition is True, else other
    allclose        Is isclose() true everywhere? A Python bool
    equal           Have x and other the same shape and values? A Python bool
    isclose         Where |x - other| ≤ atol + rtol |other|, bool, both broadcast
    clip            another name of clamp
    greater_equal   another name of ge
    greater         another name of gt
    less_equal      another name of le
    less            another name of lt
    not_equal       another name of ne

Along dims
    all             True where no value over dim is 0
    amax            Largest value over dim
    amin            Smallest value over dim
    any             True where any value over dim is not 0
    argmax          Index of the largest value along dim, the first of ties
    argmin          Index of the smallest value along dim, the first of ties
    argsort         Indices that sort x along dim
    cumsum          Running sum along dim: y_i = Σ_{j ≤ i} x_j
    log_softmax     The logarithm of softmax along dim, without underflow
    logsumexp       ln Σ e^x over dim, without overflow
    max             The largest of all; ties share the gradient
    mean            y = Σ x / n over dim
    min             The smallest of all; ties share the gradient
    prod            y = Π x over dim
    softmax         Positive numbers that sum to 1 along dim, in proportion to e^x
    sort            The pair (values, indices) in order along dim
    std             y = √var(x)
    sum             Sum over dim
    topk            The pair (values, indices) of the k largest (or smallest) along dim, in order
    var             y = Σ (x - mean)² / (n - correction) over dim
    bincount        How often each number occurs in the int vector x, int64; or the sums of weights, (n,) too, in …
    bucketize       The number of the interval between sorted boundaries, (n,), that each value of x is in: …
    count_nonzero   How many values over dim are not 0, int64
    cumprod         y_i = Π_{j ≤ i} x_j along dim; the gradient is right where factors are 0
    logcumsumexp    y_i = ln Σ_{j ≤ i} e^x_j along dim, without overflow
    median          The middle value of all, the lower of two; NaN if there is one
    norm            y = (Σ |x|^p)^(1/p) over dim; the largest or smallest |x| for p = ±∞, how many are not 0 for p = 0
    searchsorted    Where values would have to be put in so that the last dim stays sorted
    std_mean        The pair (std, mean) over dim
    unique          The different values of x in ascending order, (n,), or its different slices along dim; no gradient
    var_mean        The pair (var, mean) over dim

Shapes
    cat                 Tensors one after the other along dim; the other sizes must agree
    chunk               At most `chunks` parts along dim, as views: of equal size, but the last may be smaller
    clone               A copy of x, contiguous and with memory of its own
    flatten             x with the dims start_dim to end_dim (inclusive) merged into one
    flip                A copy of x reversed along dims
    permute             x with its dims reordered: dim i of the result is dim dims[i] of x
    repeat_interleave   A copy of x with each slice along dim `repeats` times in a row (NumPy's repeat); dim None: x …
    reshape             x in another shape of the same size; one size may be -1
    split               Consecutive views along dim: of a size (the last may be smaller), or of a list of sizes
    squeeze             x without its dims of size 1, or without those of `dim` (one or several) that have size 1
    stack               Tensors of one shape, side by side along a new dim
    transpose           x with the dims dim0 and dim1 exchanged
    unbind              The slices along dim, as views without that dim
    unsqueeze           x with a new dim of size 1 at position dim
    broadcast_tensors   The tensors broadcast against each other, without copies
    broadcast_to        x broadcast to a shape, without a copy: expand(size)
    column_stack        Tensors one after the other along dim 1; a vector is a column
    diag                A matrix with the vector x on a diagonal, or the diagonal of the matrix x
    diag_embed          Matrices with the last dim of x on the diagonal `offset` of dims dim1 and dim2, 0 elsewhere
    diagonal            The elements (i, i + offset) of dims dim1 and dim2, as the last dim of a copy
    dstack              Tensors one after the other along dim 2; a matrix has one slice
    fliplr              A copy of x reversed along its second dim
    flipud              A copy of x reversed along its first dim
    hstack              Tensors one after the other along dim 1; vectors and numbers along dim 0
    meshgrid            The coordinates of a grid: one tensor per dim, (n_0, n_1, …) each, from vectors of n_i (or …
    movedim             x with the dims `source` (one or several) at the positions `destination`, the others in order
    narrow              `length` slices of x along dim from `start` on, as a view
    ravel               x with one dim, (n,): a view where the memory layout allows, else a copy
    roll                x with its elements moved on by `shifts` along dims, those at the end to the front
    rot90               A copy of x turned by k times 90° in the plane of two dims, from the first towards the second
    split_with_sizes    Consecutive views of these sizes along dim
    t                   The transpose of a matrix, as a view; x itself, as a view, if it has fewer dims
    tensor_split        As many parts along dim, of sizes that differ by at most 1, or parts that begin at these indices
    tile                A copy of x repeated dims[i] times along dim i; if dims are fewer than x's, they are of its …
    trace               The sum of a matrix's diagonal
    unflatten           x with one dim as several, of these sizes; one may be -1
    vstack              Tensors one after the other along dim 0; a vector is a row
    concat              another name of cat
    concatenate         another name of cat
    moveaxis            another name of movedim
    swapaxes            another name of transpose
    swapdims            another name of transpose

Indexing
    gather           y[i][j] = x[i][index[i][j]] for dim 1, and so on: of index's shape and x's dtype
    index_select     The slices of x along dim named by index, an int Tensor (n,) or ()
    masked_fill      x with value, a number or a Tensor, where mask is True
    tril             The lower triangle of the last two dims, up to `diagonal` (0: the main one), zeros above
    triu             The upper triangle of the last two dims, from `diagonal` (0: the main one), zeros below
    argwhere         Where x is not 0, int64 (n, ndim), row by row
    index_add        y = x with alpha times the slices of source added at the places `index`, (n,), of dim
    index_copy       y = x with the slices of source in the places `index`, (n,), of dim; of several for one place, …
    index_fill       y = x with a number, or a tensor of no dims, in the slices `index`, (n,), of dim
    isin             Which elements are among the test elements, or are not, with invert: bool, of elements' shape
    masked_select    The elements of x where mask (bool) is True, (n,), both broadcast
    nonzero          Where x is not 0, int64 (n, ndim), row by row
    scatter          y = x with src (a Tensor or a number) written at `index` along dim; of several to one place, the …
    scatter_add      x with src added at `index` along dim: y[index[i][j]][j] += src[i][j] for dim 0, and so on
    take             The elements of x, flattened, at the int Tensor index, which may count from the end; of its shape
    take_along_dim   gather, for which x and indices are broadcast in the other dims

Products
    einsum      Einstein summation as in NumPy and PyTorch: letters, '...', ',' and '->', repeated letters for diagonals
    matmul      The matrix product x @ other, as in NumPy and PyTorch: (…, n, k) @ (…, k, m) -> (…, n, m)
    addmm       y = beta x + alpha mat1 mat2: (n, m) or what broadcasts to it, (n, k), (k, m) -> (n, m)
    addmv       y = beta x + alpha mat vec: (n,) or what broadcasts to it, (n, k), (k,) -> (n,)
    baddbmm     y = beta x + alpha batch1 batch2: (B, n, m) or what broadcasts to it, (B, n, k), (B, k, m) -> (B, n, m)
    bmm         (B, n, k) @ (B, k, m) -> (B, n, m), promoted
    dot         (k,) @ (k,) -> (), promoted
    inner       The products of the last dims: (…, k), (…, k) -> (…, …), promoted
    mm          (n, k) @ (k, m) -> (n, m), promoted
    mv          (n, k) @ (k,) -> (n,), promoted
    outer       y_ij = x_i vec2_j: (n,), (m,) -> (n, m)
    tensordot   Sums over products of the last `dims` dims of a and the first of b, or over (dims of a, dims of b)

Gradients
    detect_anomaly     Raise AnomalyError where the first NaN or Inf appears, forward or backward, naming op, module …
    enable_grad        Ops inside are recorded, even within `no_grad`: a with-block, or a decorator
    inference          Like `no_grad`, and what is computed inside can never enter a graph later: an op that would …
    is_grad_enabled    True if ops are being recorded in this thread
    no_grad            Ops inside are not recorded: with no_grad(): …, or @no_grad() before a function
    set_grad_enabled   `enable_grad` or `no_grad`, as its argument says: from the call on, or if it heads a …
    inference_mode     another name of inference
    grad               Gradients of outputs with respect to inputs, weighted by grad_outputs, as a tuple; touches no …

Ops of your own
    case        Declare inputs for an op's checks: case((3, 5), dim=1) is op(x, dim=1) of an x (3, 5) of standard …
    composite   Declare a public function that is built from ops, so that it is checked and listed like an op: …
    registry    {name: Declaration} of every op and composite
    FormulaOp   An op computed by one primitive, whose derivative is that of `formula`, the same as maths on Tensors
    Op          One differentiable operation

Speed
    capture   function, recorded at its first call and replayed at the following ones, to the same bits but without …

Random numbers
    Generator           A stream of random words
    default_generator   the Generator that initialisation, dropout and random tensors draw from
    initial_seed        The seed that the default generator began with, as an int: what manual_seed() was last given, …
    manual_seed         Seed the default generator, which initialisation, dropout and the random creation functions …

The name of a device
    device   A device's name as `device=` takes it, 'cpu' or 'cuda': also of PyTorch's 'cuda:0', and device("cuda", 0)

save and load: tensors, modules, optimizers and what belongs to them, in any nesting, as one safetensors file
    load   What save() wrote to `path`, with states in the place of modules, optimizers and generators; or {name: …
    save   Write `obj` to the file `path`: a Tensor; a module, optimizer, scheduler or anything else with a …

dtypes
    Size, bool_, dtype, finfo, float16, float32, float64, iinfo, int8, int16, int32, int64, uint8, bool, half, float,
    double, short, int, long

Errors
    AnomalyError   A NaN or Inf was found under `detect_anomaly`
    GraphError     The graph cannot be used: it was freed, was never recorded, or saved an array that has changed since
    DeviceError    A device was asked for that cannot be had here; the message says what is missing
    CaptureError   A step does something that cannot be captured; the message says what, and in which line

    Beside these, ValueError is for shapes, sizes and options that do not fit, TypeError for dtypes and types,
    IndexError for dims and indices out of range, and RuntimeError for tensors on different devices.

Modules
    autograd              The graph, the backward walk and the grad modes
    distributed           Data-parallel training on MPI, to the same bits with any number of processes
    gradcheck             Gradient checking that can be trusted: differences with error bars, the wrong element …
    nn                    Layers, attention, transformers and GPT; `functional` holds the functions behind them
    nn.cost               What a layer or a model costs, counted from its sizes without computing anything
    nn.functional         The functions behind the layers, under their PyTorch names: `from minigrad.nn import …
    nn.init               Initial values: each function fills a tensor in place, keeping its shape, dtype and place …
    nn.positions          Four ways to tell attention where a token stands
    nn.utils              Helpers for loops of training and evaluation
    optim                 Optimizers with parameter groups; learning-rate schedules, PyTorch's and nanoGPT's
    optim.lr_scheduler    Learning rates that follow a schedule, under PyTorch's names: `scheduler.step()` after each …
    random                Random numbers for every device: a Philox stream whose whole state is two integers, (seed, …
    study                 A look inside attention heads: what they compute, which gradients come back to them, and …
    training              What a training loop needs beside a model and an optimizer, on the host
    training.checkpoint   Checkpoints: one safetensors file each, so that it is written whole or not at all
    training.loop         Around a training loop: a table of losses, signals that let a step finish, and a line of …
    training.objects      save and load: tensors, modules, optimizers and what belongs to them, in any nesting, as …
    training.runs         Reading back what examples/char_lm.py has saved: a model, or a whole run to continue
    training.text         Text for character models: a vocabulary, a corpus, random batches to train on and fixed …
    typing                Names for kinds of arguments, as annotations use them: yours too, `from minigrad.typing …
    utils                 Where PyTorch has torch.utils: `data` holds datasets and loaders
    utils.data            Datasets and batches of them, under PyTorch's names
    viz                   Pictures for scripts and shells: graphs as DOT, SVG or PNG, curves and heat maps as PNG
"""

from .base import starting  # first of all: what Ctrl-C does while the rest is imported
from typing import TYPE_CHECKING

from .base import launched  # before NumPy
from . import autograd, cuda, dtypes, nn, ops, optim, random, utils
from .autograd import (
    AnomalyError, GraphError, case, composite, detect_anomaly, enable_grad, inference, is_grad_enabled,
    no_grad, registry, set_grad_enabled,
)  # fmt: skip
from .backend import DeviceError, device
from .replay.captured import capture
from .dtypes import Size, bool_, dtype, finfo, float16, float32, float64, iinfo, int8, int16, int32, int64, uint8
from .dtypes import (  # PyTorch's names of them
    bool_ as bool, float16 as half, float32 as float, float64 as double, int16 as short, int32 as int, int64 as long,
)  # fmt: skip
from .ops import (
    abs, add, all, amax, amin, any, argmax, argmin, argsort, cat, chunk, clamp, clone, cos, cumsum, div, einsum, eq,
    erf, erfc, exp, flatten, flip, floor, gather, ge, gt, index_select, isfinite, isinf, isnan, le, log, log_softmax,
    logical_and, logical_not, logical_or, logical_xor, logsumexp, lt, masked_fill, matmul, max, maximum, mean, min,
    minimum, mul, ne, neg, permute, pow, prod, relu, repeat_interleave, reshape, rsqrt, sigmoid, sign, sin, softmax,
    sort, split, sqrt, squeeze, stack, std, sub, sum, tanh, topk, transpose, tril, triu, unbind, unsqueeze, var,
    where,
)  # fmt: skip
from .ops import (  # composites
    acos, addcdiv, addcmul, addmm, addmv, allclose, argwhere, asin, atan, atan2, baddbmm, bincount, bmm,
    broadcast_tensors, broadcast_to, bucketize, ceil, column_stack, cosh, count_nonzero, cumprod, diag, diag_embed,
    diagonal, dot, dstack, equal, exp2, expm1, fliplr, flipud, floor_divide, fmod, frac, hstack, index_add, index_copy,
    index_fill, inner, isclose, isin, lerp, log1p, log2, log10, logaddexp, logcumsumexp, logit, masked_select, median,
    meshgrid, mm, movedim, mv, nan_to_num, narrow, nonzero, norm, outer, ravel, reciprocal, remainder, roll, rot90,
    round, scatter, scatter_add, searchsorted, sinh, split_with_sizes, square, std_mean, t, take, take_along_dim, tan,
    tensor_split, tensordot, tile, trace, trunc, unflatten, unique, var_mean, vstack,
)  # fmt: skip
from .ops import (  # by their second names
    abs as absolute, cat as concat, cat as concatenate, clamp as clip, div as divide, div as true_divide, ge as
    greater_equal, gt as greater, le as less_equal, lt as less, movedim as moveaxis, mul as multiply, ne as not_equal,
    neg as negative, sub as subtract, transpose as swapaxes, transpose as swapdims,
)  # fmt: skip
from .autograd import inference as inference_mode
from .base.missing import explaining, listing
from .base.recording import CaptureError
from .random import Generator, default_generator, initial_seed, manual_seed
from .tensor.gradients import FormulaOp, Op
from .tensor import (
    Tensor, arange, as_tensor, bernoulli, empty, empty_like, eye, from_dlpack, from_numpy, full, full_like, grad,
    linspace, multinomial, normal, one_hot, ones, ones_like, rand, rand_like, randint, randn, randn_like, randperm,
    tensor, tril_indices, triu_indices, zeros, zeros_like,
)  # fmt: skip
from .training.objects import load, save
from .version import __version__

__all__ = [
    "autograd", "cuda", "dtypes", "nn", "ops", "optim", "random", "utils", "AnomalyError", "GraphError", "case",
    "composite", "detect_anomaly", "enable_grad", "inference", "is_grad_enabled", "no_grad", "registry",
    "set_grad_enabled", "DeviceError", "device", "capture", "Size", "bool_", "dtype", "finfo", "float16", "float32",
    "float64", "iinfo", "int8", "int16", "int32", "int64", "uint8", "bool", "half", "float", "double", "short", "int",
    "long", "abs", "add", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "cat", "chunk", "clamp", "clone",
    "cos", "cumsum", "div", "einsum", "eq", "erf", "erfc", "exp", "flatten", "flip", "floor", "gather", "ge", "gt",
    "index_select", "isfinite", "isinf", "isnan", "le", "log", "log_softmax", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "lt", "masked_fill", "matmul", "max", "maximum", "mean", "min", "minimum",
    "mul", "ne", "neg", "permute", "pow", "prod", "relu", "repeat_interleave", "reshape", "rsqrt", "sigmoid", "sign",
    "sin", "softmax", "sort", "split", "sqrt", "squeeze", "stack", "std", "sub", "sum", "tanh", "topk", "transpose",
    "tril", "triu", "unbind", "unsqueeze", "var", "where", "acos", "addcdiv", "addcmul", "addmm", "addmv", "allclose",
    "argwhere", "asin", "atan", "atan2", "baddbmm", "bincount", "bmm", "broadcast_tensors", "broadcast_to", "bucketize",
    "ceil", "column_stack", "cosh", "count_nonzero", "cumprod", "diag", "diag_embed", "diagonal", "dot", "dstack",
    "equal", "exp2", "expm1", "fliplr", "flipud", "floor_divide", "fmod", "frac", "hstack", "index_add", "index_copy",
    "index_fill", "inner", "isclose", "isin", "lerp", "log1p", "log2", "log10", "logaddexp", "logcumsumexp", "logit",
    "masked_select", "median", "meshgrid", "mm", "movedim", "mv", "nan_to_num", "narrow", "nonzero", "norm", "outer",
    "ravel", "reciprocal", "remainder", "roll", "rot90", "round", "scatter", "scatter_add", "searchsorted", "sinh",
    "split_with_sizes", "square", "std_mean", "t", "take", "take_along_dim", "tan", "tensor_split", "tensordot", "tile",
    "trace", "trunc", "unflatten", "unique", "var_mean", "vstack", "absolute", "concat", "concatenate", "clip",
    "divide", "true_divide", "greater_equal", "greater", "less_equal", "less", "moveaxis", "multiply", "not_equal",
    "negative", "subtract", "swapaxes", "swapdims", "inference_mode", "CaptureError", "Generator", "default_generator",
    "initial_seed", "manual_seed", "FormulaOp", "Op", "Tensor", "arange", "as_tensor", "bernoulli", "empty",
    "empty_like", "eye", "from_dlpack", "from_numpy", "full", "full_like", "grad", "linspace", "multinomial", "normal",
    "one_hot", "ones", "ones_like", "rand", "rand_like", "randint", "randn", "randn_like", "randperm", "tensor",
    "tril_indices", "triu_indices", "zeros", "zeros_like", "load", "save",
]  # fmt: skip

if TYPE_CHECKING:
    from . import distributed, gradcheck, study, training, typing, viz
else:  # to mypy a module with __getattr__ would have every name
    _LATER = "distributed", "gradcheck", "study", "training", "typing", "viz"  # imported when they are first used
    __getattr__, __dir__ = explaining(__name__, *_LATER), listing(__name__, *_LATER)
    ops.keywords.accept(globals())
    autograd.later("grad", "minigrad.tensor")  # where PyTorch has them
    autograd.later("gradcheck", "minigrad.gradcheck")
