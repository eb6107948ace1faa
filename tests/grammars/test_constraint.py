"""One matcher answers for all paths of a tree, whatever their order."""

import random

import pytest

from draftwood.errors import DraftwoodError
from tests.factories.toy_constraint import ToyMatcher, legal_tokens, toy_constraint

SIZE, END, OTHER_END = 90, 70, 71


def rule(seen: tuple[int, ...]) -> set[int]:
    """Two thirds of the tokens up to 60, by what was seen; it may end at every fourth place."""
    turn = sum(i * token for i, token in enumerate(seen, 1)) % 3
    return {t for t in range(60) if (t + turn) % 3} | ({-1} if len(seen) % 4 == 3 else set())


def wanted(seen: tuple[int, ...]) -> set[int]:
    legal = rule(seen)
    return legal - {-1} | ({END, OTHER_END} if -1 in legal else set())


def test_the_legal_tokens_of_a_path_do_not_depend_on_the_paths_before() -> None:
    constraint = toy_constraint(rule, SIZE, {END, OTHER_END})
    generator = random.Random(0)
    committed: tuple[int, ...] = ()
    for _ in range(6):
        for _ in range(40):
            path: tuple[int, ...] = ()
            for _ in range(generator.randrange(6)):
                path += (generator.choice(sorted(rule((*committed, *path)) - {-1})),)
            assert legal_tokens(constraint.bits(path), SIZE) == wanted((*committed, *path))
            tokens = generator.choices([-1, *range(SIZE)], k=9)
            legal = [token in wanted((*committed, *path)) for token in tokens]
            assert constraint.allows(path, tokens) == legal
        step = sorted(rule(committed) - {-1})[:1]
        constraint.advance(step)
        committed += tuple(step)


def test_nothing_can_come_of_a_path_that_is_not_legal_or_has_ended() -> None:
    constraint = toy_constraint(rule, SIZE, {END})
    for path in ((0,), (1, 99), (1, 1, 1, END), (1, -1)):
        assert legal_tokens(constraint.bits(path), SIZE) == {*range(SIZE)}
        assert constraint.allows(path, [1, 2, END]) == [False] * 3


def test_a_chain_is_legal_up_to_its_first_illegal_token_or_its_end() -> None:
    only = toy_constraint(lambda seen: {1} if len(seen) < 3 else {-1}, SIZE, {END})
    assert only.legal_length([1, 1, 2, 1]) == 2
    assert only.legal_length([1, 1, 1, END, 1]) == 4
    assert only.legal_length([1, END]) == 1
    assert only.legal_length([SIZE, 1]) == 0
    assert only.legal_length([]) == 0
    assert only.forced() == (1, 1, 1, END)
    only.advance([1, 1, 1])
    assert only.forced() == (END,)
    only.advance([END])
    assert only.legal_length([1]) == 0
    assert only.forced() == ()


def test_of_several_ends_none_is_forced() -> None:
    only = toy_constraint(lambda seen: {1} if not seen else {-1}, SIZE, {END, OTHER_END})
    assert only.forced() == (1,)


def test_an_end_is_legal_where_the_text_may_end_even_if_it_has_a_text() -> None:
    constraint = toy_constraint(lambda seen: {5, 6, -1} if len(seen) == 2 else {5, 6}, SIZE, {6})
    assert legal_tokens(constraint.bits(()), SIZE) == {5}
    assert legal_tokens(constraint.bits((5, 5)), SIZE) == {5, 6}


def test_what_overrides_the_grammar_is_named() -> None:
    constraint = toy_constraint(rule, SIZE, {END})
    with pytest.raises(DraftwoodError, match="token 0 was chosen, which the grammar does not allo"):
        constraint.advance([0, 1])


def test_a_matcher_in_error_allows_nothing() -> None:
    constraint = toy_constraint(rule, SIZE, {END})
    matcher = constraint._matcher
    assert isinstance(matcher, ToyMatcher)
    matcher.error = "too complex"
    assert constraint.error == "too complex"
    assert not constraint.bits(()).any()
    assert constraint.allows((), [1, END]) == [False, False]
