"""Inflated models: the function of a small Llama in the tensor shapes of a large one."""
