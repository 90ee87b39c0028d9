"""What the public functions of the upper floors do when they are not told: PyTorch's defaults where it has the same."""

import inspect
from operator import attrgetter

import pytest

import minigrad as mg
from minigrad import nn, optim, study, viz
from minigrad.study import report
from minigrad.training import text
from minigrad.utils import data

HOME = {"nn": nn, "optim": optim, "data": data, "text": text, "study": study, "viz": viz, "report": report}
DEFAULTS = """
nn.BCELoss: reduction='mean'
nn.BCEWithLogitsLoss: reduction='mean'
nn.CELU: alpha=1.0, inplace=False
nn.CosineSimilarity: dim=1, eps=1e-08
nn.CrossEntropyLoss: ignore_index=-100, reduction='mean', label_smoothing=0.0
nn.Dropout: p=0.5, inplace=False
nn.ELU: alpha=1.0, inplace=False
nn.Embedding: dtype=float32
nn.Embedding.from_pretrained: freeze=True
nn.Flatten: start_dim=1, end_dim=-1
nn.GLU: dim=-1
nn.Hardshrink: lambd=0.5
nn.Hardtanh: min_val=-1.0, max_val=1.0, inplace=False
nn.HuberLoss: reduction='mean', delta=1.0
nn.KLDivLoss: reduction='mean', log_target=False
nn.L1Loss: reduction='mean'
nn.LeakyReLU: negative_slope=0.01, inplace=False
nn.LogSoftmax: dim=-1
nn.MSELoss: reduction='mean'
nn.NLLLoss: ignore_index=-100, reduction='mean'
nn.PReLU: num_parameters=1, init=0.25, dtype=float32
nn.SmoothL1Loss: reduction='mean', beta=1.0
nn.Softplus: beta=1.0, threshold=20.0
nn.Softshrink: lambd=0.5
nn.GELU: approximate='none'
nn.GPT.generate: temperature=1.0, use_cache=True
nn.GPT.cost: batch=1
nn.GPTConfig: n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False, positions='learned', tied=True, impl='fused',
    recompute=False
nn.GPTConfig.cost: batch=1, dtype=float32
nn.KVCache: device='cpu'
nn.LayerNorm: eps=1e-05, elementwise_affine=True, bias=True, dtype=float32
nn.Linear: bias=True, dtype=float32
nn.Module.named_modules: prefix=''
nn.Module.named_parameters: prefix='', recurse=True, remove_duplicate=True
nn.Module.zero_grad: set_to_none=True
nn.Module.register_buffer: persistent=True
nn.Module.state_dict: prefix='', keep_vars=False
nn.Module.load_state_dict: strict=True, assign=False
nn.Module.train: mode=True
nn.Module.requires_grad_: requires_grad=True
nn.MultiheadAttention: bias=True, dropout=0.0, impl='fused', dtype=float32
nn.MultiheadAttention.forward: need_weights=False, average_attn_weights=True, is_causal=False
nn.MultiheadAttention.register_head_hook: last=False
nn.MultiheadAttention.cost: batch=1
nn.Parameter: requires_grad=True
nn.RMSNorm: elementwise_affine=True, dtype=float32
nn.Softmax: dim=-1
nn.Transformer: d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, dropout=0.1,
    activation='relu', layer_norm_eps=1e-05, norm_first=False, bias=True, dtype=float32
nn.Transformer.forward: src_is_causal=False, tgt_is_causal=False, memory_is_causal=False
nn.TransformerDecoder.forward: tgt_is_causal=False, memory_is_causal=False
nn.TransformerDecoderLayer: dim_feedforward=2048, dropout=0.1, activation='relu', layer_norm_eps=1e-05,
    norm_first=False, bias=True, dtype=float32
nn.TransformerDecoderLayer.forward: tgt_is_causal=False, memory_is_causal=False
nn.TransformerEncoder.forward: is_causal=False
nn.TransformerEncoderLayer: dim_feedforward=2048, dropout=0.1, activation='relu', layer_norm_eps=1e-05,
    norm_first=False, bias=True, dtype=float32
nn.TransformerEncoderLayer.forward: is_causal=False
nn.choose: temperature=1.0
nn.init.kaiming_normal_: a=0.0, mode='fan_in', nonlinearity='leaky_relu', generator=default_generator
nn.init.kaiming_uniform_: a=0.0, mode='fan_in', nonlinearity='leaky_relu', generator=default_generator
nn.init.orthogonal_: gain=1.0, generator=default_generator
nn.init.normal_: mean=0.0, std=1.0, generator=default_generator
nn.init.uniform_: a=0.0, b=1.0, generator=default_generator
nn.init.trunc_normal_: mean=0.0, std=1.0, a=-2.0, b=2.0, generator=default_generator
nn.init.xavier_normal_: gain=1.0, generator=default_generator
nn.init.xavier_uniform_: gain=1.0, generator=default_generator
nn.positions.alibi: start=0, dtype=float32, device='cpu'
nn.positions.rotary: start=0, base=10000.0
nn.positions.sinusoidal: dtype=float32
nn.cost.Cost: parameters=0, flops=0, kv_cache=0
nn.cost.attention: batch=1, bias=True, dtype=float32
nn.masks.hidden_future: start=0, device='cpu'
nn.utils.clip_grad_norm_: norm_type=2.0, error_if_nonfinite=False
optim.Adam: lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0, amsgrad=False,
    maximize=False, capturable=False, differentiable=False, decoupled_weight_decay=False
optim.AdamW: lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01, amsgrad=False,
    maximize=False, capturable=False, differentiable=False
optim.SGD: lr=0.001, momentum=0.0, dampening=0, weight_decay=0.0, nesterov=False, maximize=False,
    differentiable=False
optim.Optimizer.zero_grad: set_to_none=True
optim.lr_scheduler.ReduceLROnPlateau: mode='min', factor=0.1, patience=10, threshold=0.0001, threshold_mode='rel',
    cooldown=0, min_lr=0.0, eps=1e-08
optim.lr_scheduler.ConstantLR: factor=0.3333333333333333, total_iters=5, last_epoch=-1
optim.lr_scheduler.CosineAnnealingLR: eta_min=0.0, last_epoch=-1
optim.lr_scheduler.CosineAnnealingWarmRestarts: T_mult=1, eta_min=0.0, last_epoch=-1
optim.lr_scheduler.ExponentialLR: last_epoch=-1
optim.lr_scheduler.LambdaLR: last_epoch=-1
optim.lr_scheduler.LinearLR: start_factor=0.3333333333333333, end_factor=1.0, total_iters=5, last_epoch=-1
optim.lr_scheduler.MultiStepLR: gamma=0.1, last_epoch=-1
optim.lr_scheduler.OneCycleLR: pct_start=0.3, anneal_strategy='cos', cycle_momentum=True, base_momentum=0.85,
    max_momentum=0.95, div_factor=25.0, final_div_factor=10000.0, three_phase=False, last_epoch=-1
optim.lr_scheduler.PolynomialLR: total_iters=5, power=1.0, last_epoch=-1
optim.lr_scheduler.StepLR: gamma=0.1, last_epoch=-1
data.DataLoader: batch_size=1, num_workers=0, pin_memory=False, drop_last=False, timeout=0, persistent_workers=False,
    pin_memory_device='', in_order=True
data.RandomSampler: replacement=False
data.WeightedRandomSampler: replacement=True
text.fixed_batches: name='text'
text.read_corpus: paths=()
text.split: fraction=0.9
study.AttentionOnly: n_layer=2, n_head=4, n_embd=64, impl='batched'
study.HeadTrace.to_html: title='Attention heads', of='the loss', limit=30000000
study.Recorder: every=25, loss=returned_loss, start=0, flow=False
study.Recorder.to_html: title='Attention heads in training', limit=30000000
study.ablate_heads: mode='zero'
study.attention_attribution: steps=20, loss=returned_loss
study.backward_lens: weight='W_O', top=5
study.designed_head: vocab_size=32, block_size=32, sharpness=20.0
study.edge_patch: loss=returned_loss
study.entropy: normalised=True
study.flow: loss=returned_loss
study.head_importance: method='ablate', steps=20, loss=returned_loss
study.head_scores: kinds=('previous', 'duplicate', 'induction', 'copying'), periods=(9, 16), n=64, seed=0
study.ledger: scope='', values='summary', fd_check=False, impl='batched'
study.logit_attribution: positions=(-1,)
study.losses_without: loss=returned_loss
study.mean_loss: loss=returned_loss
study.patch: loss=returned_loss, point='z', method='exact', steps=20
study.prune: method='ablate', loss=returned_loss
study.trace_heads: grads=True
study.what_if: sequence=0, amount=1.0, loss=returned_loss
report.page: of='the loss', limit=30000000
viz.graph: direction='forward', show=('shape',), max_nodes=200
viz.curves: log=''
"""  # those that are None, which the functions explain, are left out


def written(value):
    if isinstance(value, mg.dtypes.np.dtype):
        return value.name
    return "default_generator" if value is mg.default_generator else getattr(value, "__name__", repr(value))


@pytest.mark.parametrize(
    "row", DEFAULTS.strip().replace("\n    ", " ").splitlines(), ids=lambda row: row.partition(":")[0]
)
def test_defaults(row):
    name, _, expected = row.partition(": ")
    home, _, path = name.partition(".")
    parameters = inspect.signature(attrgetter(path)(HOME[home])).parameters.values()
    given = {p.name: p.default for p in parameters if p.default is not p.empty and p.default is not None}
    shown = [f"{name}={written(value)}" for name, value in given.items() if "FACTORY" not in type(value).__name__]
    assert ", ".join(shown) == expected


def test_presets_are_the_published_settings():
    nanogpt = dict(vocab_size=65, bias=False, init_std=None)
    gpt2 = dict(vocab_size=50257, block_size=1024, dropout=0.1, bias=True, init_std=0.02)
    presets = {
        "nanogpt-cpu": nanogpt | dict(block_size=64, n_layer=4, n_head=4, n_embd=128, dropout=0.0),
        "nanogpt-gpu": nanogpt | dict(block_size=256, n_layer=6, n_head=6, n_embd=384, dropout=0.2),
        "gpt2": gpt2 | dict(n_layer=12, n_head=12, n_embd=768),
        "gpt2-medium": gpt2 | dict(n_layer=24, n_head=16, n_embd=1024),
        "gpt2-large": gpt2 | dict(n_layer=36, n_head=20, n_embd=1280),
        "gpt2-xl": gpt2 | dict(n_layer=48, n_head=25, n_embd=1600),
    }
    assert list(presets) == list(nn.gpt.PRESETS)
    for name, sizes in presets.items():
        assert nn.GPTConfig.preset(name) == nn.GPTConfig(**sizes)
