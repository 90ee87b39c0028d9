"""What study says of heads against TransformerLens (3.9, with PyTorch 2.13), with the same weights in float64.

TransformerLens 4 has no HookedTransformer that could be made from a config, so it takes "transformer-lens<4"."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, study
from minigrad.study.layers import as_float64, head_weights
from minigrad.study.stream import back_through_norm

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # its imports warn of their own affairs
V, T, B, NH, C = 11, 6, 3, 4, 16
CHANGES = {
    "GPT-2": dict(),
    "grouped, rotary": dict(n_kv_head=2, positions="rotary", tied=False),
    "attention only": None,
}


@pytest.fixture(scope="session")
def lens(torch):
    return pytest.importorskip("transformer_lens", reason="TransformerLens is not installed")


@pytest.fixture(params=CHANGES.values(), ids=CHANGES)
def pair(request, torch, lens):
    """(our model, theirs)"""
    return pair_of(torch, lens, request.param)


def pair_of(torch, lens, changes):
    mg.manual_seed(0)
    if changes is None:
        model = study.AttentionOnly(V, T, n_layer=2, n_head=NH, n_embd=C).double()
    else:
        config = dict(n_layer=2, n_head=NH, n_embd=C, bias=True, impl="batched") | changes
        model = nn.GPT(nn.GPTConfig(V, T, **config)).double()
        for p in model.parameters():
            nn.init.normal_(p, std=0.5)
    rotary, groups = getattr(model, "wpe", None) is None, model.blocks[0].attn.num_kv_heads
    options = dict(n_key_value_heads=groups) if groups < NH else {}
    if rotary:
        options |= dict(positional_embedding_type="rotary", rotary_dim=C // NH)
    config = lens.HookedTransformerConfig(
        n_layers=2, d_model=C, n_ctx=T, d_head=C // NH, n_heads=NH, d_mlp=4 * C, d_vocab=V, act_fn="gelu_new",
        attn_only=changes is None, normalization_type=None if changes is None else "LN", dtype=torch.float64, seed=0,
        device="cpu", use_split_qkv_input=True, ungroup_grouped_query_attention=True, use_attn_result=True, **options,
    )  # fmt: skip
    theirs = lens.HookedTransformer(config)
    state = {name: torch.from_numpy(np.array(x)) for name, x in translate_gpt2(model).items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all(name.endswith(FIXED) for name in missing), (missing, unexpected)
    return model, theirs


FIXED = "mask", "IGNORE", "rotary_sin", "rotary_cos"


def translate_gpt2(model):
    """{TransformerLens's name: array} of our weights."""
    state = {"embed.W_E": as_float64(model.wte.weight)}
    if getattr(model, "wpe", None) is not None:
        state["pos_embed.W_pos"] = as_float64(model.wpe.weight)
    for i, block in enumerate(model.blocks):
        attn, at = block.attn, f"blocks.{i}.attn"
        W_Q, _, _, W_O = map(np.stack, zip(*(head_weights(attn, h) for h in range(NH))))
        state |= {f"{at}.W_Q": W_Q, f"{at}.W_O": W_O}
        shared = "_" if attn.num_kv_heads < NH else ""
        for name, W in zip("KV", attn.weights()[1:]):
            of_groups = as_float64(W).reshape(attn.num_kv_heads, -1, C).swapaxes(1, 2)
            state[f"{at}.{shared}W_{name}"] = of_groups
        sizes = (NH, attn.num_kv_heads, attn.num_kv_heads)
        for name, n, b in zip("QKV", sizes, attn.biases()):
            b = np.zeros((n, C // NH)) if b is None else as_float64(b).reshape(n, -1)
            state[f"{at}.{shared if name != 'Q' else ''}b_{name}"] = b
        state[f"{at}.b_O"] = np.zeros(C) if attn.out_proj.bias is None else as_float64(attn.out_proj.bias)
        if hasattr(block, "mlp"):
            for name, linear in (("in", block.mlp.fc), ("out", block.mlp.proj)):
                state[f"blocks.{i}.mlp.W_{name}"] = as_float64(linear.weight).T
                state[f"blocks.{i}.mlp.b_{name}"] = as_float64(linear.bias)
            for n in (1, 2):
                norm = getattr(block, f"norm{n}")
                state |= {f"blocks.{i}.ln{n}.{p[0]}": as_float64(getattr(norm, p)) for p in ("weight", "bias")}
    if hasattr(model, "norm"):
        state |= {f"ln_final.{p[0]}": as_float64(getattr(model.norm, p)) for p in ("weight", "bias")}
    head = model.wte if model.lm_head is None else model.lm_head
    return state | {"unembed.W_U": as_float64(head.weight).T, "unembed.b_U": np.zeros(V)}


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, V, (B, T)), rng.integers(0, V, (B, T))


def ours_of(*arrays):
    return tuple(map(mg.tensor, arrays))


def loss_of(torch, theirs, x, y):
    logits = theirs(torch.from_numpy(x), return_type="logits")
    return torch.nn.functional.cross_entropy(logits.reshape(-1, V), torch.from_numpy(y).reshape(-1))


def watched(torch, theirs, x, y):
    """{hook: array} of all activations, and of their gradients."""
    values = {}

    def keep(value, hook):
        if value.requires_grad:
            value.retain_grad()
        values[hook.name] = value

    with theirs.hooks(fwd_hooks=[(lambda name: True, keep)]):
        loss_of(torch, theirs, x, y).backward()
    gradients = {name: value.grad.numpy() for name, value in values.items() if value.grad is not None}
    return {name: value.detach().numpy() for name, value in values.items()}, gradients


def near(x, expected, rtol=1e-12):
    np.testing.assert_allclose(x, expected, rtol=0, atol=rtol * abs(expected).max())


def test_values_and_gradients_of_heads(torch, pair):
    model, theirs = pair
    values, gradients = watched(torch, theirs, *batch())
    with study.trace_heads(model) as trace:
        model(*ours_of(*batch()))[1].backward()
    rotary = model.blocks[0].attn.positions == "rotary"
    for i, path in enumerate(trace):
        seen, at = trace[path], f"blocks.{i}.attn.hook_"
        for name in ("q", "k", "v", "z"):
            hook = f"{at}rot_{name}" if rotary and name in "qk" else at + name
            near(getattr(seen, name), values[hook].swapaxes(1, 2))
            near(getattr(seen, f"{name}_grad"), gradients[hook].swapaxes(1, 2))
        near(seen.pattern, values[f"{at}pattern"])
        near(seen.pattern_grad, gradients[f"{at}pattern"])
        visible = np.tri(T, dtype=bool)
        near(seen.scores_grad, gradients[f"{at}attn_scores"] * visible)
        near(seen.scores * visible, np.where(visible, values[f"{at}attn_scores"], 0.0))


def test_gradients_of_each_heads_own_input(torch, pair):
    model, theirs = pair
    values, gradients = watched(torch, theirs, *batch())
    with study.trace_heads(model) as trace:
        model(*ours_of(*batch()))[1].backward()
    for i, path in enumerate(trace):
        norm, seen = getattr(model.blocks[i], "norm1", None), trace[path]
        for p in "qkv":
            stream, G = values[f"blocks.{i}.hook_{p}_input"], gradients[f"blocks.{i}.hook_{p}_input"]  # (B, T, nh, C)
            dx = getattr(seen, f"x_{p}_grad")
            if norm is not None:  # theirs comes before it
                dx = back_through_norm(norm, stream.swapaxes(1, 2), dx, np.float64)
            near(dx, G.swapaxes(1, 2))
        near(seen.y, values[f"blocks.{i}.hook_attn_out"])
        near(seen.y_grad, gradients[f"blocks.{i}.hook_attn_out"])


def test_gradients_of_weights(torch, pair):
    model, theirs = pair
    watched(torch, theirs, *batch())
    with study.trace_heads(model) as trace:
        model(*ours_of(*batch()))[1].backward()
    for i, path in enumerate(trace):
        for weight in "W_Q", "W_O":
            near(trace[path].weight_grad(weight), getattr(theirs.blocks[i].attn, weight).grad.numpy())


# ------------------------------------------------------------------------------- numbers that have names elsewhere


def results(theirs, values, layer):
    """What each head of a layer writes: (B, T, nh, C)."""
    z, W_O = values[f"blocks.{layer}.attn.hook_z"], theirs.blocks[layer].attn.W_O.detach().numpy()
    return np.einsum("bthd,hdc->bthc", z, W_O)


def test_gate_grad_is_attribution_patching_with_zeros(torch, pair):
    """Attribution patching (Nanda 2023) of hook_z: (patched - clean) · gradient, with 0 as the patched value."""
    model, theirs = pair
    values, gradients = watched(torch, theirs, *batch())
    with study.trace_heads(model) as trace:
        model(*ours_of(*batch()))[1].backward()
    for i, path in enumerate(trace):
        hook = f"blocks.{i}.attn.hook_z"
        attribution = ((0 - values[hook]) * gradients[hook]).sum((0, 1, 3))
        near(-trace.table()["gate_grad"][path], attribution)


def test_ablation_is_zero_ablation_of_hook_z(torch, pair):
    model, theirs = pair
    x, y = batch()
    clean, found = loss_of(torch, theirs, x, y).item(), study.head_importance(model, [ours_of(x, y)])
    for i, path in enumerate(found):
        for h in range(NH):

            def ablate(z, hook, h=h):
                z = z.clone()
                z[:, :, h] = 0
                return z

            with theirs.hooks(fwd_hooks=[(f"blocks.{i}.attn.hook_z", ablate)]):
                without = loss_of(torch, theirs, x, y).item()
            np.testing.assert_allclose(found[path][h], without - clean, atol=1e-12)


@pytest.mark.parametrize("p", "qkv")
def test_edges_are_path_patching_and_edge_attribution_with_zeros(torch, pair, p):
    """An edge from head 0.h to an input of head 1.g: cut, it is path patching (Goldowsky-Dill et al. 2023) with 0 for
    what the sender writes; to first order it is edge attribution patching (Syed et al. 2023) with 0."""
    model, theirs = pair
    x, y = batch()
    values, gradients = watched(torch, theirs, x, y)
    written, hook = results(theirs, values, 0), f"blocks.1.hook_{p}_input"
    clean = loss_of(torch, theirs, x, y).item()
    first, cut = study.flow(model, ours_of(x, y)), study.flow(model, ours_of(x, y), method="cut")
    for h in range(NH):
        for g in range(NH):

            def patch(stream, hook, h=h, g=g):
                stream = stream.clone()
                stream[:, :, g] -= torch.from_numpy(written[:, :, h])
                return stream

            with theirs.hooks(fwd_hooks=[(hook, patch)]):
                patched = loss_of(torch, theirs, x, y).item()
            np.testing.assert_allclose(cut.edge(f"0.{h}", f"1.{g}")[p], clean - patched, atol=1e-12)
            attribution = ((0 - written[:, :, h]) * gradients[hook][:, :, g]).sum()
            np.testing.assert_allclose(-first.edge(f"0.{h}", f"1.{g}")[p], attribution, atol=1e-13)


NAMES = {"previous": "previous_token_head", "duplicate": "duplicate_token_head", "induction": "induction_head"}


@pytest.mark.parametrize("kind", NAMES)
def test_scores_are_those_of_the_head_detector(torch, lens, kind):
    """Theirs is a share of the attention of all T queries; ours is the mean over the queries to which it applies."""
    model, theirs = pair_of(torch, lens, CHANGES["GPT-2"])
    tokens = np.array([[4, 7, 2, 4, 7, 2]])
    queries = {"previous": 5, "duplicate": 3, "induction": 3}[kind]
    detector, given = lens.head_detector, torch.from_numpy(tokens)
    wanted = getattr(detector, f"get_{NAMES[kind]}_detection_pattern")(given)
    values = watched(torch, theirs, tokens, tokens)[0]
    with study.trace_heads(model, grads=False) as trace:
        model(mg.tensor(tokens))
    for i, path in enumerate(trace):
        pattern = trace[path].pattern
        ours = study.previous(pattern)[0] if kind == "previous" else getattr(study, kind)(pattern, tokens)
        for h in range(NH):
            score = detector.compute_head_attention_similarity_score(
                torch.from_numpy(values[f"blocks.{i}.attn.hook_pattern"][0, h]), wanted,
                exclude_bos=False, exclude_current_token=False, error_measure="mul",
            )  # fmt: skip
            np.testing.assert_allclose(ours[h] * queries / T, score, atol=1e-6)  # theirs is rounded to 3e-7
