"""ports.py, on a small program of ours: what it changes, and that it sees a loss that differs."""

import pytest

from . import ports

pytestmark = pytest.mark.oracle
MODEL = """
import torch.nn as nn
class Net(nn.Linear):
    pass
"""
TRAIN = """
import torch
from torch.utils.data.dataloader import DataLoader
from torch.utils.data import RandomSampler, TensorDataset
from model import Net
scale = 1.0
scale = 2.0  # skip
dataset = TensorDataset(torch.randn(8, 3).double() * 0 + torch.arange(24.0).view(8, 3) / 10)
net = Net(3, 1).to("cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for i, (x,) in enumerate(DataLoader(dataset, 2, sampler=RandomSampler(dataset, replacement=True, num_samples=2000))):
    loss = (net(x.double()) * scale - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i == 30:
        print(f"done in {i}ms, loss {loss:.4f}")
        exit()
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def test_ports(torch, checkout):
    program = ports.Program("train.py", ("model.py",), short={"i == 30": "i == 25", "skip": ""})
    made, theirs, ours = ports.compare(torch, program, checkout)
    assert [new for _, _, _, new in made] == [
        "import minigrad as torch", "from minigrad.utils.data import DataLoader",
        "from minigrad.utils.data import RandomSampler, TensorDataset", "import minigrad.nn as nn",
    ]  # fmt: skip
    assert len(theirs[0]) == 26 and ours[0] == pytest.approx(theirs[0], rel=1e-12) and theirs[0][0] != theirs[0][25]
    assert len(theirs[1]) == 2 and ours[1][0].dtype == "float64"
    assert ours[2] == theirs[2] and ours[2][0].startswith("done in , loss ")


def test_ports_can_fail(torch, checkout):
    program = ports.Program("train.py", ("model.py",), changes={"^scale = 1.0": "scale = 1.0 + 1e-9"}, deleted="skip")
    _, theirs, ours = ports.compare(torch, program, checkout)
    assert ours[0] != pytest.approx(theirs[0], rel=ports.RTOL, abs=0)
    program.changes["scale = 3"] = ""
    with pytest.raises(SystemExit, match=r"another version: no line has scale = 3$"):
        ports.compare(torch, program, checkout)
