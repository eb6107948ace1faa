"""Decoding with llama-cpp-python: writes a model's weights as GGUF and decodes from the file."""
