"""Attention layers and transformers against PyTorch's, and GPT-2 against Hugging Face's: outputs and gradients."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.training import checkpoint

from .compare import assert_layers_agree, twins

pytestmark = pytest.mark.oracle
B, T, S, C, NH = 2, 5, 7, 12, 3
PADDING = np.array([[False] * 7, [False, False, True, False, False, True, True]])
HIDDEN = np.random.default_rng(0).random((T, S)) < 0.3


def mask_of(kind, rng, *shape):
    """True: not to attend; each query sees key 0 at least, for torch makes NaN of one that sees nothing."""
    if kind == "float":
        return rng.standard_normal(shape)
    mask = rng.random(shape) < 0.4
    mask[..., 0] = False
    return mask


def arrays(*shapes):
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape) for shape in shapes]


def attentions(torch, form="batched", **options):
    return twins(
        torch,
        lambda m: mg.nn.MultiheadAttention(C, NH, impl=form, batch_first=True, dtype=mg.float64, **options),
        lambda m: m.nn.MultiheadAttention(C, NH, batch_first=True, dtype=m.float64, **options),
    )


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")  # torch's; it still computes
@pytest.mark.parametrize(
    "form, weights",
    [(form, weights) for form in ("per_head", "batched") for weights in ("none", "mean", "per head")]
    + [("fused", "none")],
)
@pytest.mark.parametrize("padding", [None, "bool", "float"])
@pytest.mark.parametrize("mask", [None, "bool", "float", "bool per head", "float per head"])
@pytest.mark.parametrize("inputs", ["self", "cross", "q, k, v", "without bias"])
def test_multihead_attention(torch, inputs, mask, padding, weights, form):
    rng = np.random.default_rng(0)
    shapes = {"self": [(T, C)], "cross": [(T, C), (S, C)], "q, k, v": [(T, C), (S, C), (S, C)],
              "without bias": [(T, C), (S, C)]}[inputs]  # fmt: skip
    options = {"without bias": dict(bias=False)}.get(inputs, {})
    xs, S_ = arrays(*((B, *shape) for shape in shapes)), shapes[-1][0]
    masks = {}
    if mask:
        masks["attn_mask"] = mask_of(mask.split()[0], rng, *((B * NH, T, S_) if "per head" in mask else (T, S_)))
    if padding:
        masks["key_padding_mask"] = mask_of(padding, rng, B, S_)

    def call(layer, m, *xs):
        q, k, v = (*xs, xs[-1], xs[-1])[:3]
        given = {name: m.tensor(array) for name, array in masks.items()}
        return layer(q, k, v, need_weights=weights != "none", average_attn_weights=weights == "mean", **given)

    assert_layers_agree(torch, *attentions(torch, form, **options), call, xs)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_causal(torch, need_weights):
    def call(layer, m, x):
        beside = {} if m is mg else {"attn_mask": m.ones(T, T, dtype=m.bool).triu(1)}  # torch insists on both
        return layer(x, x, x, is_causal=True, need_weights=need_weights, **beside)

    assert_layers_agree(torch, *attentions(torch), call, [np.random.default_rng(0).standard_normal((B, T, C))])


def test_multihead_attention_of_nothing(torch):
    """A batch entry that is all padding: zeros, not NaN, for its pattern; torch agrees where it makes no pattern."""
    padding = np.zeros((B, T), bool)
    padding[1] = True

    def call(layer, m, x):
        return layer(x, x, x, key_padding_mask=m.tensor(padding), need_weights=False)

    ours, theirs = attentions(torch)
    x = np.random.default_rng(0).standard_normal((B, T, C))
    assert_layers_agree(torch, ours, theirs, call, [x])
    _, pattern = ours(mg.tensor(x), key_padding_mask=mg.tensor(padding), need_weights=True)
    assert not pattern.detach().numpy()[1].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("nkv", [1, 2, 4])
def test_grouped_attention(torch, nkv, causal):
    inputs = arrays((B, 4, T, 6), (B, nkv, T, 6), (B, nkv, T, 5))
    found = []
    for library in (mg, torch):
        xs = [library.tensor(x, requires_grad=True) for x in inputs]
        attend = library.nn.functional.scaled_dot_product_attention
        y = attend(*xs, is_causal=causal, enable_gqa=True)
        (y * y).sum().backward()
        found.append([y.detach().numpy(), *(x.grad.numpy() for x in xs)])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


def test_gpt_2_from_hugging_face(torch, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=41, n_positions=16, n_embd=24, n_layer=3, n_head=3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_(std=0.3)
    state = {name: x.clone().contiguous() for name, x in theirs.state_dict().items() if name != "lm_head.weight"}
    save_file(state, tmp_path / "model.safetensors")
    ours = nn.GPT.from_state_dict(checkpoint.load_tensors(tmp_path / "model.safetensors"), n_head=3)

    rng = np.random.default_rng(0)
    idx, targets = rng.integers(0, 41, (2, 16)), rng.integers(0, 41, (2, 16))
    logits, loss = ours(mg.tensor(idx), mg.tensor(targets))
    expected = theirs(torch.tensor(idx)).logits
    their_loss = torch.nn.functional.cross_entropy(expected.reshape(-1, 41), torch.tensor(targets).reshape(-1))
    np.testing.assert_allclose(logits.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    assert loss.item() == pytest.approx(their_loss.item(), rel=1e-12)
    loss.backward()
    their_loss.backward()
    gradients = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
    given = nn.GPT.from_state_dict(gradients, n_head=3).state_dict()
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), given[name].numpy(), rtol=1e-9, atol=1e-11)

    prompt = torch.tensor(idx[:1, :4])
    written = theirs.generate(prompt, max_new_tokens=10, do_sample=False, pad_token_id=0)
    assert ours.generate(mg.tensor(idx[:1, :4]), 10, temperature=0).tolist() == written.tolist()
