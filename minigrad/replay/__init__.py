"""`mg.capture`: a step recorded once and replayed without Python."""
