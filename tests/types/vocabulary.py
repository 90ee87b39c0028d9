"""Types by the names of arguments. In minigrad one word has one meaning everywhere, so its type is said here, once.

`name=` is an argument whose default is None, `name=…` one with another default that does not tell its type, and
`function.name` that of one function alone. What the sources annotate themselves needs no entry."""

KINDS = {
    "Tensor": "x q k v qk input target query key value weight mask condition index src tgt memory mat1 mat2 vec "
    "vec2 source tensor tensor1 tensor2 boundaries sorted_sequence indices end x1 x2",
    "Tensor | None": "weight= bias= mask= attn_mask= src_mask= tgt_mask= memory_mask= src_key_padding_mask= "
    "tgt_key_padding_mask= memory_key_padding_mask= weights= sorter= pos_weight=",
    "Tensor | Array": "matmul.input matmul.other tensordot.a tensordot.b einsum.operands",
    "Operand": "other exponent masked_fill.value lerp.weight elements test_elements searchsorted.input",
    "Operand | None": "clamp.min= clamp.max= input= other= scatter.src=",
    "Sequence[Tensor]": "tensors",
    "int": "dim dim0 dim1 chunks topk.k select.index repeat_interleave.repeats start length in_features out_features "
    "num_embeddings embedding_dim",
    "int | None": "output_size= argmax.dim= argmin.dim= take_along_dim.dim= correction= padding_idx=",
    "int | Sequence[int]": "split_size_or_sections shifts movedim.source destination",
    "Dims": "dim= dims= logsumexp.dim",
    "Size": "size shape dims sizes repeats times normalized_shape order along",
    "Size | None": "size= shape= repeat.repeats= tile.dims= permute.dims= flip.dims=",
    "Sequence[int]": "pad.pad",
    "Tensor | int | None": "repeat_interleave.repeats=",
    "float | None": "scatter.value= min= max= scale= eps= posinf= neginf= pad.value=",
    "float": "alpha=… beta=… pad.value=… addcmul.value=… addcdiv.value=…",
    "float | str": "norm.p=…",
    "bool | None": "unbiased=",
    "str": "equation",
    "DTypeLike": "dtype dtype=…",
    "DTypeLike | None": "dtype=",
    "str | None": "device= rounding_mode= side=",
    "Index": "getitem.index parsed_index.index",
    "Generator | None": "generator= generator=…",
    "Any": "parsed_index.input",
}
REFUSED = {"out"}  # arguments that functions know of in order to refuse them

# What functions of ops return, where that is not one Tensor.
RETURNS = {
    "parsed_index": "tuple[Any, ...]",
    **dict.fromkeys(("split", "chunk", "unbind"), "tuple[Tensor, ...]"),
    **dict.fromkeys(("broadcast_tensors", "meshgrid"), "tuple[Tensor, ...]"),
    **dict.fromkeys(("sort", "topk"), "ValuesIndices"),
    **dict.fromkeys(("var_mean",), "tuple[Tensor, Tensor]"),
    **dict.fromkeys(("allclose", "equal"), "bool"),
}

# Functions of ops whose result depends on the arguments: each kind of call.
ONE_OR_PAIR = (
    "(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor",
    "(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices",
    "(input: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices",
)
OF_TWO = "(input: Tensor, other: Tensor) -> Tensor"
CALLS = {
    "max": (*ONE_OR_PAIR, OF_TWO),
    "min": (*ONE_OR_PAIR, OF_TWO),
    "median": ONE_OR_PAIR,
    "nonzero": (
        "(input: Tensor, as_tuple: Literal[False] = False) -> Tensor",
        "(input: Tensor, as_tuple: Literal[True]) -> tuple[Tensor, ...]",
    ),
    "unique": (
        "(input: Tensor, sorted: bool = True, return_inverse: Literal[False] = False, "
        "return_counts: Literal[False] = False, dim: int | None = None) -> Tensor",
        "(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, "
        "dim: int | None = None) -> Tensor | tuple[Tensor, ...]",
    ),
    "split_heads": ("(input: Tensor, heads: int, /) -> Tensor", "(input: Tensor, *heads: int) -> tuple[Tensor, ...]"),
}
