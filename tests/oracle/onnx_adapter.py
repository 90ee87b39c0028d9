"""ONNX graphs run on minigrad's public functions, so that ONNX's own node tests check them.

`cases()` are ONNX's, and `reason(case)` is None if the case must pass here, else why it is not for us. Being wrong is
never a reason.

    python -m tests.oracle.onnx_adapter    # the cases that are not for us, by reason
"""

import functools
import warnings
from collections import defaultdict, namedtuple

import numpy as np
import onnx
from onnx.helper import get_attribute_value, tensor_dtype_to_np_dtype
from onnx.numpy_helper import to_array

import minigrad as mg
from minigrad import dtypes

from .onnx_ops import OPS

UNAVAILABLE = {
    op: why
    for why, ops in {
        "no convolutions, pooling or other windows": "AveragePool CausalConvWithState Col2Im Conv ConvInteger "
        "ConvTranspose DeformConv LRN LpPool MaxPool MaxUnpool QLinearConv RoiAlign",
        "no images": "GridSample ImageDecoder NonMaxSuppression Resize Upsample",
        "no recurrent networks": "GRU LSTM RNN",
        "no linear attention": "LinearAttention",
        "no control flow in a graph": "If Loop Scan",
        "no sequences or optionals": "OptionalGetElement OptionalHasElement SequenceEmpty SequenceInsert "
        "SequenceLength SequenceMap SplitToSequence",
        "no strings": "LabelEncoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
        "no quantisation": "DequantizeLinear DynamicQuantizeLinear QLinearMatMul QuantizeLinear",
        "no complex numbers": "DFT STFT",
        "no operations on bits": "BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor",
        "no inverse trigonometry": "Acos Asin Atan",
        "no determinant, running product, nonzero or unique": "CumProd Det NonZero Unique",
        "random numbers of ONNX's own": "Bernoulli RandomUniformLike",
        "an optimizer with its state as tensors": "Adagrad Adam Momentum",
        "a program, not a composition": "MelWeightMatrix ReverseSequence TensorScatter TreeEnsemble",
        "a program; its definition by other ops may be for us": "AffineGrid BlackmanWindow CenterCropPad DepthToSpace "
        "FlexAttention HammingWindow HannWindow RotaryEmbedding SpaceToDepth",
    }.items()
    for op in ops.split()
}


def limit(case):
    """Why a case of an op in OPS does not apply, or None."""
    given, node = case.inputs, attributes(case.graph.node[0])
    if case.op == "BatchNormalization" and node.get("training_mode"):
        return "training mode: we have no running averages"
    if case.op == "Dropout" and len(given) == 3 and given[1] and given[2]:
        return "random numbers of ONNX's own"
    if case.op == "Mod" and np.isinf(given[1]).any():
        return "no remainder of our own, and the composed one is for finite divisors"
    if case.op.startswith("Scatter") and node.get("reduction", "none") not in ("none", "add"):
        return "no scatter that multiplies or compares"
    if case.op in ("ReduceMax", "ReduceMin") and 0 in given[0].shape:
        return "the maximum of nothing is an error, as in PyTorch"
    return None


# ------------------------------------------------------------------------------------------------------------ the cases

Case = namedtuple("Case", "name op graph inputs outputs rtol atol")  # op: the one that the case is about
_DTYPES = {"to", "dtype", "softmax_precision", "stash_type"}  # attributes that name a dtype


@functools.cache
def cases():
    """ONNX's node tests, as Cases. One named …_expanded… runs the definition of its op by other ops."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, while ONNX computes what it expects
        from onnx.backend.test.loader import load_model_tests

        tests = load_model_tests(kind="node")
    ops = {test.name: test.model.graph.node[0].op_type for test in tests if "_expanded" not in test.name}
    found = []
    for test in tests:
        ((inputs, outputs),) = test.data_sets
        inputs, outputs = [array(x) for x in inputs], [array(x) for x in outputs]
        op = ops[test.name.split("_expanded")[0]]
        found.append(Case(test.name, op, test.model.graph, inputs, outputs, test.rtol, test.atol))
    return found


def array(x):
    """A tensor of a test as an array; a sequence or an optional as it is."""
    if isinstance(x, onnx.TensorProto):
        return to_array(x)
    return x if isinstance(x, list) or x is None else np.asarray(x)


def float_or(dtype, wide):
    return mg.float64 if wide and dtype.kind == "f" else dtype


def attributes(node, wide=False):
    """{name: value}, with dtypes and arrays. wide: float64 in place of every float dtype that is named."""
    found = {a.name: get_attribute_value(a) for a in node.attribute}
    for name, value in found.items():
        if name in _DTYPES:
            found[name] = float_or(tensor_dtype_to_np_dtype(value), wide)
        elif isinstance(value, onnx.TensorProto):
            found[name] = array(value)
        elif isinstance(value, bytes):
            found[name] = value.decode()
    return found


def run(case, *inputs, wide=False):
    """The outputs of a case's graph for these Tensors. wide: in float64."""
    values = dict(zip((x.name for x in case.graph.input), inputs)) | {"": None}  # "" is an input left out
    for node in case.graph.node:
        keywords = attributes(node, wide)
        if node.op_type == "Split" and len(node.input) == 1:
            keywords.setdefault("num_outputs", len(node.output))
        results = OPS[node.op_type](*(values[name] for name in node.input), **keywords)
        values.update(zip(node.output, results if isinstance(results, tuple) else (results,)))
    return [values[x.name] for x in case.graph.output]


def reason(case):
    """Why a case is not for minigrad, or None if it is. Empty for an op that neither table names."""
    for node in case.graph.node:
        if node.op_type not in OPS:
            return UNAVAILABLE.get(node.op_type, "")
    values = [*case.inputs, *case.outputs]
    if not all(isinstance(x, np.ndarray) for x in values):
        return "no sequences or optionals"
    values += [value for node in case.graph.node for value in attributes(node).values()]
    for dtype in [getattr(x, "dtype", x) for x in values if isinstance(x, (np.ndarray, np.dtype))]:
        if dtype not in dtypes.ALL:
            return "no strings" if dtype.kind == "O" else f"no dtype {dtype}"
    return limit(case)


def not_applicable():
    """{reason: its cases}"""
    found = defaultdict(list)
    for case in cases():
        if (why := reason(case)) is not None:
            found[why].append(case)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    for why, excluded in not_applicable().items():
        print(f"{why} ({len(excluded)})")
        for case in excluded:
            print(f"    {case.name}")
