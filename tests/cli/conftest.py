"""The corpus and the tokenizer that tests of ``draftwood train`` share with those of training."""

from tests.lab.train.conftest import corpus, tokenizer

__all__ = ["corpus", "tokenizer"]
