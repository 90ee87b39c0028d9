"""What runs kernels: a GPU through CuPy (cuda), and the CPU at speed (native)."""
