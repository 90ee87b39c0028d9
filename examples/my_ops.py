"""Two ops of your own. One has a mistake in its backward, and this command finds it:

    minigrad check examples/my_ops.py

It tries each op on the cases that it declares, and compares its derivatives with finite differences. Put the mistake
right (a factor is missing in Gaussian.backward), run it again, and both pass.
"""

from minigrad import Op, case


class Softsign(Op):
    """y = x / (1 + |x|);   dx = dy / (1 + |x|)²"""

    cases = [case((3, 4))]

    def forward(self, x):  # x is an array of self.backend
        self.save_inputs(x)
        return x / (1 + self.backend.abs(x))

    def backward(self, dy):  # in Tensors, so that it can be differentiated again
        (x,) = self.saved_inputs()
        return dy / (1 + x.abs()) ** 2


class Gaussian(Op):
    """y = exp(-β x²);   dx = dy · -2β x y"""

    cases = [case((3, 4), beta=1.0), case((2, 1, 5), beta=0.3)]

    def forward(self, x, beta):
        self.save_inputs(x)
        return self.backend.exp(-beta * x * x)

    def backward(self, dy):
        (x,) = self.saved_inputs()
        y = (-self.beta * x * x).exp()
        return dy * -2 * x * y  # for β = 1, which one tries first, this is right
