"""What peers ``llamacpp`` and ``llamacpp-lookup`` share: a model's weights in a GGUF file, and a
contender that decodes from it with llama-cpp-python."""
