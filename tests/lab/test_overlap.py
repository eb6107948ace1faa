"""Which training documents share words with an evaluation prompt."""

import pytest

from draftwood.errors import DraftwoodError
from draftwood.lab.overlap import WORDS, EvaluationText, Overlap, words

LONG = " ".join(f"w{n}" for n in range(20))


def shared(document: str, *prompts: str) -> Overlap | None:
    return EvaluationText((f"p{n}", text) for n, text in enumerate(prompts)).overlap(
        ("a document", document)
    )


def test_words_are_lower_cased_and_stripped_of_punctuation() -> None:
    assert words("He said: “Don't - stop_it(1, 2)!” \n- Ééé") == [
        *("he", "said", "dont", "stopit1", "2", "ééé")
    ]


@pytest.mark.parametrize("start", range(8))
def test_thirteen_consecutive_words_of_a_prompt_are_an_overlap(start: int) -> None:
    gram = LONG.split()[start : start + WORDS]
    found = shared("before " + ", ".join(gram).upper() + "! after", "something else", LONG)
    assert found == Overlap("a document", "p1", tuple(gram))


@pytest.mark.parametrize("start", range(9))
def test_twelve_are_none(start: int) -> None:
    assert shared(" ".join(["before", *LONG.split()[start : start + 12], "after"]), LONG) is None


def test_words_in_another_order_or_with_one_between_are_none() -> None:
    half = LONG.split()[:12]
    assert shared(" ".join([*half, "between", *LONG.split()[12:19]]), LONG) is None
    assert shared(" ".join(reversed(LONG.split())), LONG) is None


def test_a_shorter_prompt_counts_as_a_whole() -> None:
    assert shared("And then: find x, such that f(x) = 0!", "Find x such that f(x) = 0.")
    assert shared("find x such that f(x) = 1", "Find x such that f(x) = 0.") is None


def test_a_prompt_without_words_and_an_empty_document_share_nothing() -> None:
    assert shared("some text", "...", "") is None
    assert shared("", LONG) is None


def test_the_refusal_names_the_document_the_prompt_and_the_words() -> None:
    evaluation = EvaluationText([("set/3", "Find x such that f(x) = 0.")])
    evaluation.refuse([("doc 1", "nothing of it")])
    with pytest.raises(
        DraftwoodError,
        match=r"doc 2 shares 'find x such that fx 0' with the evaluation prompt set/3: leave the "
        "document out",
    ):
        evaluation.refuse([("doc 1", "nothing"), ("doc 2", "So find x such that f(x) = 0.")])
