"""Mistakes that type checkers have to find: each line that ends in `# error: words` gives an error with these words, as
mypy says it, and no other line gives one. Nobody runs this file."""

from typing import Any

import minigrad as mg
from minigrad import Op, Tensor, nn, optim, viz
from minigrad.gradcheck import gradcheck
from minigrad.nn import functional as F
from minigrad.utils.data import DataLoader, TensorDataset

x = mg.randn(2, 3)
model = nn.GPT(nn.GPTConfig(vocab_size=11, block_size=8))
optimizer = optim.AdamW(model.parameters(), lr=1e-3)

# names that do not exist
print(x.nonexistent)  # error: has no attribute "nonexistent"
F.nonexistent(x)  # error: has no attribute "nonexistent"
x.sum().backwards()  # error: "backwards"
(x + 1).grad.zero_()  # error: "None" of "Tensor | None" has no attribute "zero_"
model(x, x)[1].items()  # error: "items"
print(x.max(dim=1).value)  # error: "value"
model.trainning = False  # error: "trainning"
x.add_(1).add__()  # error: "add__"
print(model.blocks[0].attention)  # error: "Block" has no attribute "attention"
model.generate(x, temperatur=3)  # error: "temperatur"
print(x.nonzero().counts)  # error: "counts"
print(gradcheck(F.silu, x).findings[0].verdicts)  # error: "Finding" has no attribute "verdicts"

# names of arguments
x.sum(dims=1)  # error: "dims"
F.cross_entropy(x, x.long(), smoothing=0.1)  # error: "smoothing"
nn.Linear(3, 4, biases=True)  # error: "biases"
optim.SGD(model.parameters(), learning_rate=0.1)  # error: "learning_rate"
nn.Linear(3, 4)(x, mask=x)  # error: "mask"
gradcheck(F.silu, x, order="2")  # error: incompatible type "str"; expected "int"
viz.graph(x, direction=1)  # error: incompatible type "int"; expected "str"
model.register_forward_hook(lambda module, output: None)  # error: incompatible type "Callable[[Any, Any], None]"

# types of arguments
x.sum("rows")  # error: incompatible type "str"
x + "1"  # error: incompatible type "str"; expected "Value | float
x @ 2.0  # error: incompatible type "float"; expected "Tensor | ndarray
mg.cat(x, x)  # error: cat
x.reshape("2")  # error: incompatible type "str"
x["row"]  # error: "str"
x.masked_fill(True, 0.0)  # error: incompatible type "bool"; expected "Tensor"
nn.Linear(3, "4")  # error: incompatible type "str"; expected "int"
nn.Linear(3, 4)([1.0])  # error: incompatible type "list[float]"; expected "Tensor"
optim.Adam(model.parameters(), betas=0.9)  # error: expected "tuple[float, float]"
optim.SGD(model)  # error: incompatible type "GPT"
mg.save("model.safetensors", model)  # error: incompatible type "GPT"
mg.max(x, "rows")  # error: No overload

# what is returned
shape: list[int] = x.shape  # error: Incompatible types in assignment
number: str = x.sum().item()  # error: Incompatible types in assignment
pair: Tensor = x.sort()  # error: Incompatible types in assignment
layer: nn.Embedding = nn.Linear(3, 4)  # error: Incompatible types in assignment
x.shape = (3, 2)  # error: "shape"


class Wrong(nn.Module):
    def __init__(self) -> None:
        self.fc = nn.Linear(3, 4)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.fc.weights @ x * scale  # error: "weights"


Wrong()(x, 2.0, 3.0)  # error: Too many arguments
Wrong()(x, scale="2")  # error: incompatible type "str"; expected "float"
Wrong().state_dicts()  # error: "state_dicts"


blocks = nn.ModuleList(Wrong() for _ in range(2))
blocks[0](x, "2")  # error: incompatible type "str"; expected "float"
for block in blocks[:1]:
    print(block.fc.weights)  # error: "weights"
nn.Sequential(Wrong(), nn.ReLU())[0].fc()  # error: has no attribute "fc"
blocks.append(nn.Linear(3, 4))  # error: incompatible type "Linear"; expected "Wrong"
rows = TensorDataset(x, x)
number_of: int = rows[0]  # error: Incompatible types in assignment
DataLoader(rows, batch_size="2")  # error: incompatible type "str"
DataLoader(3)  # error: incompatible type "int"


@mg.no_grad()
def evaluated(x: Tensor) -> Tensor:
    return x


evaluated(3)  # error: incompatible type "int"; expected "Tensor"


class Twice(Op):
    """y = 2 x;   dx = 2 dy"""

    def forward(self, x: Any) -> Any:
        return self.backend.add(x, x)

    def backward(self, dy: Tensor) -> Tensor:
        return self.saved_input() * dy  # error: "saved_input"


@mg.capture
def step(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).sum()


step(x)  # error: Missing positional argument "y"
step(x, "y")  # error: incompatible type "str"
print(step(x, x).nonexistent)  # error: "nonexistent"
