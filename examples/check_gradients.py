"""Check gradients of your own: an op with a mistake in its backward, found inside a loss; the correct op; a model.

python examples/check_gradients.py
"""

import minigrad as mg
from minigrad import Op, case, nn
from minigrad.gradcheck import check_op, gradcheck
from minigrad.nn import functional as F


class Swish(Op):
    """y = x σ(βx);   dx = dy (s + βx s (1 - s)), s = σ(βx)"""

    cases = [case((3, 4), beta=1.5), case((2, 1, 5), beta=-0.3)]

    def forward(self, x, beta):  # raw arrays of self.backend
        self.save_inputs(x)
        return x * self.backend.sigmoid(beta * x)

    def backward(self, dy):  # Tensors, so that it can be differentiated again
        (x,) = self.saved_inputs()
        s = (self.beta * x).sigmoid()
        return dy * (s + self.beta * x * s * (1 - s))


class ForgetfulSwish(Swish):
    """The same without β in the second term. It is right for β = 1, the value one would try first."""

    cases = Swish.cases

    def backward(self, dy):
        (x,) = self.saved_inputs()
        s = (self.beta * x).sigmoid()
        return dy * (s + x * s * (1 - s))


def loss(op, x, weight):
    """A small network with the op in the middle."""
    return F.cross_entropy(op.apply(x @ weight[0], beta=1.5) @ weight[1], mg.tensor([0, 1, 1]))


def main():
    mg.manual_seed(0)
    x, weight = mg.randn(3, 4), [mg.randn(4, 5), mg.randn(5, 2)]

    print("A loss with a wrong op in it:\n")
    report = gradcheck(loss, ForgetfulSwish, x, weight, raise_on_fail=False)
    print(report.message())

    print("\nThe same with the correct op:\n")
    print(gradcheck(loss, Swish, x, weight))

    print("\nThe op on every case that it declares, first and second derivatives:\n")
    for row in check_op(Swish):
        print(row.verdict, row.case, f"order {row.order}: {row.error:.1e} of what is allowed")

    print("\nA whole model, along random directions:\n")
    model = nn.GPT(nn.GPTConfig(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=16))
    tokens, targets = mg.randint(0, 11, (2, 8)), mg.randint(0, 11, (2, 8))
    print(gradcheck(lambda m: m(tokens, targets)[1], model, probes=()))


if __name__ == "__main__":
    main()
