"""GPT, as in nanoGPT: the model, its configuration, GPT-2's checkpoints, and how it writes."""
