"""`mg.capture`: a step whose Python runs at every call, and whose arithmetic is recorded and run in one piece."""
