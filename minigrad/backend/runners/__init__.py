"""The backends that run kernels: Cuda, on a GPU through CuPy, and Native, on the CPU."""
