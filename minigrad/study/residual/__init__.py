"""The residual streams of a model, what writes into them and who reads them, and so where gradients come from."""
