"""PTX, what NVRTC compiles kernels to, as C++ for a CPU: parse.py, instructions.py, body.py, translate.py, in order.

thread.h and instructions.h are what the C++ is compiled against; threads.cpp runs blocks of threads.
"""
