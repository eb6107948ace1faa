"""A corpus of two domains, a few kilobytes each, and a tokenizer trained on it."""

import gzip
import random
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from draftwood.lab.train.corpus import Domain, find_sources, load_domain, sample_texts
from draftwood.lab.train.tokenizer import load_tokenizer, train_tokenizer

MIXTURE = {"code": 0.75, "prose": 0.25}


def write_domain(directory: Path, name: str, documents: list[str]) -> Path:
    path = directory / f"{name}.txt.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("".join(f"{text}\n<|endoftext|>\n" for text in documents))
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    rng = random.Random(5)
    names = ["alpha", "beta", "gamma", "delta", "tree", "node"]
    code = [
        "\n".join(
            f"def {rng.choice(names)}({rng.choice(names)}, n={rng.randrange(99)}):\n"
            f"    return {rng.choice(names)} + {rng.randrange(9)}\n"
            for _ in range(6)
        )
        for _ in range(60)
    ]
    words = ["the", "ship", "went", "down", "to", "harbour", "and", "every", "café", "sang"]
    prose = [" ".join(rng.choices(words, k=120)) + "." for _ in range(40)]
    write_domain(directory, "code", code)
    write_domain(directory, "prose", prose)
    return directory


@pytest.fixture(scope="session")
def tokenizer(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    directory = tmp_path_factory.mktemp("tokenizer")
    texts = sample_texts(find_sources(corpus), MIXTURE, 30_000, seed=1)
    train_tokenizer(texts, 320).save_pretrained(directory)
    return load_tokenizer(directory)


@pytest.fixture(scope="session")
def domains(
    corpus: Path, tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Domain, ...]:
    cache = tmp_path_factory.mktemp("cache")
    return tuple(load_domain(source, tokenizer, cache) for source in find_sources(corpus))
