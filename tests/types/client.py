"""A program as users write one, annotated. It runs, and `mypy --strict` has nothing to say about it."""

import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import Op, Tensor, case, nn, optim, study, viz
from minigrad.gradcheck import check_op, gradcheck
from minigrad.nn import functional as F
from minigrad.training import text
from minigrad.typing import DTypeLike
from minigrad.utils.data import DataLoader, Dataset


class Pairs(Dataset[tuple[int, int]]):
    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, index**2

    def __len__(self) -> int:
        return 5


class Square(Op):
    """y = x²;   dx = 2 x dy"""

    cases = [case((3, 4)), case((2, 1, 5))]

    def forward(self, x: Any) -> Any:
        self.save_inputs(x)
        return self.backend.mul(x, x)

    def backward(self, dy: Tensor) -> Tensor:
        (x,) = self.saved_inputs()
        return 2 * x * dy


class Momentum(optim.Optimizer):
    """b = momentum · b + g;   p -= lr · b"""

    buffers = ("b",)

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def update(self, p: Tensor, g: Tensor, state: Any, group: Any) -> None:
        state["b"].mul_(group["momentum"]).add_(g)
        p -= group["lr"] * state["b"]


def square(x: Tensor) -> Tensor:
    y: Tensor = Square.apply(x)
    return y


class MLP(nn.Module):
    """Two layers: (…, C) -> (…, C)."""

    def __init__(self, C: int, hidden: int, p: float = 0.1) -> None:
        self.fc, self.proj = nn.Linear(C, hidden), nn.Linear(hidden, C, bias=False)
        self.drop = nn.Dropout(p)
        self.scale = nn.Parameter(mg.ones(C))
        self.register_buffer("seen", mg.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.proj(F.gelu(self.fc(x), approximate="tanh"))) * self.scale


class Towers(nn.Module):
    """Containers of modules: (…, C) -> (…, C)."""

    def __init__(self, C: int) -> None:
        self.layers = nn.ModuleList([MLP(C, C)])
        self.layers.append(MLP(C, 2 * C)).extend(MLP(C, C) for _ in range(2))
        self.parts = nn.ModuleDict({"in": nn.Linear(C, C), "out": nn.Linear(C, C)})
        self.named = nn.Sequential(OrderedDict(fc=nn.Linear(C, C), act=nn.ReLU()))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[1:]:
            x = layer(x) * layer.scale
        for part in self.parts.values():
            x = part(x) + part.weight.mean()
        return self.named(x).detach().clamp_(-1.0, max=1.0)


class Classifier(nn.Module):
    """tokens (B, T) -> logits (B, V), and the loss if there are targets (B,)."""

    def __init__(self, V: int, C: int = 8) -> None:
        self.wte = nn.Embedding(V, C)
        self.attn = nn.MultiheadAttention(C, 2, positions="rotary", batch_first=True)
        self.mlps = nn.ModuleList(MLP(C, 4 * C) for _ in range(2))
        self.head = nn.Sequential(nn.LayerNorm(C), nn.Linear(C, V))

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(tokens)  # (B, T, C)
        z, _ = self.attn(x, is_causal=True)
        x = x + z
        for mlp in self.mlps:
            x = x + mlp(x)
        logits = self.head(x.mean(dim=1))  # (B, V)
        return logits, None if targets is None else F.cross_entropy(logits, targets)


def tensors(dtype: DTypeLike = mg.float64) -> Iterator[Tensor]:
    """Use Tensors: operators, indices, methods, functions, NumPy."""
    x = mg.randn(4, 6, dtype=dtype, requires_grad=True)
    w = mg.tensor(np.linspace(-1.0, 1.0, 18).reshape(6, 3), dtype=dtype)
    mask = (x > 0) & ~(x == 1.0) | x.isnan()
    y = (2 - x) / (1 + x**2) @ w - w.mT[0, None, 1:4]
    yield y.softmax(dim=-1) + mg.softmax(input=y, dim=-1) + mg.maximum(y, other=y) + y.log_softmax(dim=1).exp()
    yield x.masked_fill(mask, 0.0).sum(-1, keepdim=True) + x.mean(dim=(0, 1)) + x.amax(0)[[0, 2]].std()
    values, indices = x.max(dim=1)
    yield values * x.max() + x.gather(1, indices.unsqueeze(1)).squeeze(1)
    rows = mg.cat([row.reshape(2, -1) for row in x], dim=0)  # (8, 3)
    yield rows + mg.stack(x.unbind())[:, ::2].flatten()[:8, None].clamp(min=-1)
    yield mg.where(mask, x, 0.5).to(mg.float32).double().transpose(0, 1).contiguous().view(3, 8)
    yield mg.einsum("ij,jk->ik", x, w).tril() + mg.topk(x, 3).values * np.float32(2) + x.split([3, 3], dim=1)[0]
    B, T = x.shape
    assert x.numel() == B * T and x.size(0) == B and x.ndim == x.dim() == len(x.size()) and x.device.type == "cpu"
    with mg.no_grad():
        x -= 0.1 * x
        x[0, :2] = 0
        x.mul_(2).add_(1, alpha=0.5)
    (dx,) = mg.grad((x**3).sum(), x, create_graph=True)
    (ddx,) = mg.grad(dx.sum(), [x])
    yield ddx
    array = x.detach().numpy()
    assert isinstance(x.dtype, mg.dtype) and mg.finfo(x.dtype).eps < 1e-6
    loader: DataLoader[tuple[int, int]] = DataLoader(Pairs(), batch_size=2)
    for n, square_of_n in loader:
        yield square_of_n - n * 0.5
    yield Towers(6).requires_grad_(False)(mg.randn(2, 6))
    yield x.norm() + mg.maximum(x, 2 * x).max() + x.nonzero().sum() * x.nonzero(as_tuple=True)[0].float().mean()
    assert x.stride(0) == x.stride()[0] and nn.GPT(nn.GPTConfig(5, 4)).generate([[1], [2]], 1).shape == (2, 2)
    yield mg.from_numpy(array).to(x) + mg.arange(6) * float(x.sum().item())


def train(steps: int = 3) -> Classifier:
    """Train a model with an optimizer in a captured step, with clipping and hooks; save it and load it."""
    vocab = text.CharVocab("hello world")
    generator = mg.Generator(1)
    batches = text.Batches(vocab.encode("hello world" * 20), 8, 4, generator)
    model = Classifier(len(vocab)).train()
    optimizer = optim.AdamW([{"params": list(model.parameters()), "weight_decay": 0.1}], lr=1e-2, betas=(0.9, 0.95))
    norms: list[float] = []
    handle = model.head.register_forward_hook(lambda module, args, output: None)

    @mg.capture
    def step(x: Tensor, y: Tensor) -> Tensor:
        _, loss = model(x, y[:, -1])
        assert loss is not None
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    handle.remove()
    for i in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = optim.warmup_cosine(i, lr=1e-2, min_lr=1e-3, warmup=1, total=steps)
        x, y = next(batches)
        loss = step(mg.tensor(x), y=mg.tensor(y))
        norms.append(loss.item())
    assert all(np.isfinite(norms)) and model.wte.weight.grad is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        mg.save({"model": model, "optimizer": optimizer, "train": generator, "step": steps}, path)
        saved = mg.load(path)
        optimizer.load_state_dict(saved["optimizer"])
        generator.state = saved["train"]
        keys = model.load_state_dict(saved["model"])
        assert not keys.missing_keys and not keys.unexpected_keys and saved["step"] == steps
    return model.eval()


@mg.no_grad()
def evaluated(model: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = model.eval()(x)
    return y.softmax(-1)


def check(model: Classifier) -> list[str]:
    """Check the gradients of an op, of a model and of a function."""
    report = gradcheck(square, mg.randn(3, 4), order=2)
    assert report and report.worst is not None and report.worst.verdict == "PASS"
    tokens, targets = mg.randint(0, 5, (2, 4)), mg.randint(0, 5, (2,))
    whole = gradcheck(lambda m: m(tokens, targets)[1], model, probes=())
    rows = check_op(Square)
    return [report.summary(), whole.message(), *(row.verdict for row in rows)]


def look(folder: Path) -> str:
    """Trace, measure and draw the heads of a GPT."""
    config = nn.GPTConfig(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16)
    model = nn.GPT(config)
    x, y = mg.randint(0, 11, (3, 8)), mg.randint(0, 11, (3, 8))
    with study.trace_heads(model, layers=[1]) as trace:
        logits, loss = model(x, y)
        loss.backward()
    seen = trace["blocks.1.attn"]
    largest = float(seen.pattern[0, 1].max())
    assert logits.shape == (3, 8, 11) and 0 < largest <= 1
    importance = study.head_importance(model, [(x, y)], "joint_path", steps=2)
    name, head = study.ranked(importance)[0]
    page = trace.to_html(folder / "heads.html", title=f"{name} {head}")
    source = viz.graph(loss, names=model).source
    written = model.generate(x[:1], 4, temperature=0.8, top_k=5)
    return f"{page.name} {len(source) > 0} {written.shape} {trace.table().best('entropy')[0]}"


def main() -> None:
    for y in tensors():
        assert isinstance(y, Tensor) and y.dtype.kind == "f"
    model = train()
    own = Momentum(model.parameters(), lr=1e-2)
    own.step()
    print("\n".join(check(model)), evaluated(model.mlps[0], mg.randn(2, 8)).shape)
    with tempfile.TemporaryDirectory() as folder:
        print(look(Path(folder)))


if __name__ == "__main__":
    main()
