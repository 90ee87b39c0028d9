"""The backward pass, step by step."""
