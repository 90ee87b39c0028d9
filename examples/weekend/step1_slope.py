"""Step 1: a slope, by trying.

How much faster does y = f(x) grow than x? Move x a little to both sides and see:

    f'(x) ≈ (f(x + h) - f(x - h)) / 2h

Everything that you build from here on is checked against this quotient, so the first question is how far it can be
trusted. Predict before you run this file: is a smaller h always better? If not, where does it turn, and why?
"""

import math


def slope(f, x, h=1e-5):
    """Return the derivative of f at x."""
    # your turn: two calls of f, one on each side of x
    return (f(x + h) - f(x - h)) / (2 * h)
    # end


def error(h):
    """Return how wrong the slope of sin at 1 is. The true slope is cos(1)."""
    return abs(slope(math.sin, 1.0, h) - math.cos(1.0))


def best_h():
    """Return the best of 0.1, 0.01, … 1e-15."""
    # your turn: the h whose error is smallest
    return min((10.0**-k for k in range(1, 16)), key=error)
    # end


if __name__ == "__main__":
    from pictures import curves, stop_if_unfinished

    stop_if_unfinished()
    ks = list(range(1, 16))
    for k in ks:
        print(f"h = 1e-{k:02}   error {error(10.0**-k):.1e}")
    curves({"error": [error(10.0**-k) + 1e-17 for k in ks]}, "slope.png", "k, where h = 10^-k", "error", log=True)
    print(f"The best h is {best_h():g}. slope.png shows a V. The error of the formula falls with h²; below 1e-5 the")
    print("two values of f are so alike that few digits are left of their difference, and the error of rounding grows.")
