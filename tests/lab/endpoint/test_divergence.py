"""The first difference of two answers, and what explains it."""

from collections.abc import Sequence

import pytest

from draftwood.lab.endpoint.answer import Choice, Token
from draftwood.lab.endpoint.divergence import Divergence, divergence
from draftwood.lab.endpoint.penalties import additive, repetition

Place = tuple[str, dict[str, float]]


def choice(*places: Place | str) -> Choice:
    """An answer whose tokens have these likeliest ones at their places."""
    tokens: list[Token] = []
    text = ""
    for place in places:
        own, top = (place, {place: -0.5}) if isinstance(place, str) else place
        tokens.append(Token(own, top[own], tuple(top.items()), len(text)))
        text += own
    return Choice(text, "length", tuple(tokens))


REFERENCE = choice(
    " The",
    (" cat", {" cat": -0.7, " dog": -0.8, " bird": -3.0}),
    (" sat", {" sat": -0.2, " ran": -2.0, " s": -4.0}),
)


def found(
    text: str, tokens: Sequence[str] = (), tolerance: float = 0.2, reason: str = "length"
) -> Divergence:
    other = Choice(text, reason, tuple(Token(each, -1.0) for each in tokens))
    result = divergence(REFERENCE, other, tolerance)
    assert result is not None
    return result


def test_equal_texts_have_none() -> None:
    assert divergence(REFERENCE, Choice(" The cat sat"), 0.2) is None
    assert divergence(REFERENCE, Choice(" The cat"), 0.2, cut=True) is None
    assert divergence(REFERENCE, Choice(" The c\ufffd"), 0.2, cut=True) is None
    assert divergence(REFERENCE, Choice(" The cot"), 0.2, cut=True) is not None


@pytest.mark.parametrize("tokens", [(), (" The", " dog", " ran")])
def test_a_near_tie(tokens: tuple[str, ...]) -> None:
    result = found(" The dog ran", tokens)
    assert (result.token, result.expected, result.found) == (1, " cat", " dog")
    assert result.gap == pytest.approx(0.1)
    assert result.cause == "rounding"
    assert str(result) == "token 1 is ' dog' and not ' cat'; gap 0.1, within 0.2: rounding"
    assert result.before == " The"


def test_a_gap_above_the_tolerance_is_a_fault() -> None:
    result = found(" The bird sat")
    assert result.gap == pytest.approx(2.3)
    assert result.cause == "fault"
    assert "above 0.2: more than rounding" in str(result)


def test_a_token_that_is_not_among_the_likeliest_is_a_fault() -> None:
    result = found(" The cow sat", (" The", " cow", " sat"))
    assert result.at_least
    assert result.gap == pytest.approx(2.3)
    assert result.cause == "fault"
    flat = found(" The cow sat", (" The", " cow", " sat"), tolerance=5.0)
    assert flat.cause == "unknown"


def test_an_earlier_longer_token_explains_a_text_that_parts_later() -> None:
    reference = choice(
        (" the", {" the": -0.70, " then": -0.75, " a": -3.0}), (" cat", {" cat": -0.1, " c": -5})
    )
    result = divergence(reference, Choice(" then a"), 0.2)
    assert result is not None
    assert (result.token, result.found, result.cause) == (0, " then", "rounding")


def test_an_answer_that_ends_earlier_is_not_explained_without_its_tokens() -> None:
    result = found(" The cat", reason="stop")
    assert (result.gap, result.cause, result.found) == (None, "unknown", "")
    ended = choice(" The", (" cat", {" cat": -0.7, "<end>": -0.75}))
    other = Choice(" The", "stop", (Token(" The", -0.5), Token("<end>", -0.75)))
    tied = divergence(ended, other, 0.2)
    assert tied is not None
    assert (tied.token, tied.cause) == (1, "rounding")


def test_another_number_of_tokens_is_a_fault_where_a_limit_ended_both() -> None:
    result = found(" The cat", (" The", " cat"))
    assert (result.cause, result.before, result.expected) == ("fault", " The cat", " sat")
    assert str(result) == "2 tokens, not 3, and the same limit ended both"
    longer = found(" The cat sat on", (" The", " cat", " sat", " on"))
    assert str(longer) == "4 tokens, not 3, and the same limit ended both"
    text = found(" The cat")
    assert str(text) == "8 characters, not 12, and the same limit ended both"
    assert text.cause == "fault"
    held = divergence(Choice("a\ufffd", "length"), Choice("a", "length"), 0.2)
    assert held is not None
    assert held.cause == "unknown", "a cut character may be held back"
    # As many tokens, cut otherwise: " the" and " n" where the reference has " then" and " a".
    reference = choice((" then", {" then": -0.70, " the": -0.75}), (" a", {" a": -0.1, " an": -5}))
    tokens = (Token(" the", -0.75), Token("n", -0.1))
    cut = divergence(reference, Choice(" then", "length", tokens), 0.2)
    assert cut is not None
    assert (cut.token, cut.cause) == (0, "rounding")


def test_without_log_probabilities_nothing_is_explained() -> None:
    result = divergence(Choice(" The cat"), Choice(" The dog"), 0.2)
    assert result is not None
    assert (result.token, result.before, result.expected, result.found) == (
        None,
        " The ",
        "cat",
        "dog",
    )
    assert result.cause == "unknown"
    assert "is not known" in str(result)


def test_presence_and_frequency_penalties_count_the_generated_tokens() -> None:
    reference = choice("a", "b", "a", ("c", {"a": -0.1, "c": -2.0, "b": -1.2, "d": -2.05}))
    other = Choice("abab", "length")
    result = divergence(reference, other, 0.2, score=additive("x", 0.0, 0.85))
    assert result is not None
    assert result.found == "b"
    assert result.gap == pytest.approx(0.05)
    assert result.cause == "rounding"
    result = divergence(reference, other, 0.2, score=additive("x", 1.5, 0.0))
    assert result is not None
    assert result.gap == pytest.approx(0.7)
    for prompt, gap in (("x", 0.05), ("d", 0.05), ("c", 0.05), ("c d", 0.05), ("cd cd", 0.05)):
        found = divergence(reference, Choice("abad"), 0.2, score=additive(prompt, 1.5, 0.0))
        assert found is not None
        assert found.gap == pytest.approx(gap)
    # This reference counts the prompt's tokens: only then is d nearly as good as c, and not better.
    counted = choice("b", ("c", {"c": -2.0, "d": -0.45}))
    found = divergence(counted, Choice("bd"), 0.2, score=additive("d", 1.5, 0.0))
    assert found is not None
    assert found.gap == pytest.approx(0.05)


def test_a_repetition_penalty_is_explained_between_new_tokens_alone() -> None:
    reference = choice("a", ("c", {"a": -0.1, "c": -2.0, "d": -2.05}))
    new = divergence(reference, Choice("ad"), 0.2, score=repetition("x"))
    old = divergence(reference, Choice("aa"), 0.2, score=repetition("x"))
    prompted = divergence(reference, Choice("ad"), 0.2, score=repetition("a d b"))
    assert new is not None
    assert new.cause == "rounding"
    assert old is not None
    assert old.cause == "unknown"
    assert prompted is not None
    assert prompted.cause == "unknown"
