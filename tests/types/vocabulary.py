"""Types by the names of arguments. In minigrad one word has one meaning everywhere, so its type is said here, once.

`name=` is an argument whose default is None, `function.name` that of one function alone. What a default tells
(keepdim=False) needs no entry, nor does what the sources annotate themselves."""

KINDS = {
    "Tensor": "x q k v qk input target query key value weight mask condition index src tgt memory",
    "Tensor | None": "weight= bias= mask= attn_mask= src_mask= tgt_mask= memory_mask= src_key_padding_mask= "
    "tgt_key_padding_mask= memory_key_padding_mask=",
    "Tensor | Array": "matmul.a matmul.b einsum.operands",
    "Operand": "other exponent masked_fill.value",
    "Sequence[Tensor]": "tensors",
    "int": "dim dim0 dim1 chunks topk.k repeat_interleave.repeats in_features out_features num_embeddings "
    "embedding_dim",
    "int | None": "argmax.dim= argmin.dim=",
    "int | Sequence[int]": "split_size_or_sections",
    "Dims": "dim= logsumexp.dim",
    "Size": "shape dims sizes repeats normalized_shape",
    "Sequence[int]": "pad.pad",
    "float": "pad.value",
    "float | None": "min= max= scale= eps=",
    "Index": "getitem.index parsed_index.index",
    "Generator | None": "generator=",
    "Any": "parsed_index.x",
    "str": "equation",
}

# What functions of ops return, where that is not one Tensor.
RETURNS = {
    "parsed_index": "tuple[Any, ...]",
    "split": "tuple[Tensor, ...]",
    "chunk": "tuple[Tensor, ...]",
    "unbind": "tuple[Tensor, ...]",
    "sort": "ValuesIndices",
    "topk": "ValuesIndices",
}

# Functions of ops whose result depends on the arguments: each kind of call.
EXTREME = (
    "(x: Tensor, dim: None = None, keepdim: bool = False) -> Tensor",
    "(x: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices",
    "(x: Tensor, axis: int, keepdims: bool = False) -> ValuesIndices",
)
CALLS = {
    "max": EXTREME,
    "min": EXTREME,
    "split_heads": ("(x: Tensor, heads: int, /) -> Tensor", "(x: Tensor, *heads: int) -> tuple[Tensor, ...]"),
}
