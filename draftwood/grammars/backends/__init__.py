"""Grammar libraries; a file's name is the library's.

Each has ``compiler(tokenizer, size)``, and ``check(grammar)``, which refuses a wrong grammar
without a tokenizer.
"""
