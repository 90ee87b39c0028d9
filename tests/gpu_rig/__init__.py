"""A rig that runs the GPU path without a GPU: README.md."""
