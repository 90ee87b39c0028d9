"""`mg.capture`: a step whose Python runs at every call, and whose arithmetic is captured and replayed in one piece."""
