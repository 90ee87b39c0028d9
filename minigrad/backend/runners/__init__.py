"""What runs kernels: a GPU through CuPy (cuda), the CPU at speed (native), and the CPU for proof (emulated)."""
