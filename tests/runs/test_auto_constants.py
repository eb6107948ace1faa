"""Every constant that is neutralised exists, is put back, and a change is measured over groups."""

import importlib

import pytest

from runs.smollm2.auto_constants import AUTO, NEUTRAL, change, neutral


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_constant_is_neutral_for_a_while(name: str) -> None:
    file, values = NEUTRAL[name]
    module = importlib.import_module(AUTO + file)
    known = {attribute: getattr(module, attribute) for attribute in values if "." not in attribute}
    with neutral(name):
        for attribute, before in known.items():
            assert getattr(module, attribute) is not before
    for attribute, before in known.items():
        assert getattr(module, attribute) is before


def test_a_change_is_one_of_tokens_per_second() -> None:
    plain = [(10, 1.0), (20, 2.0), (30, 3.0)]
    assert change(plain, plain) == (0.0, 0.0, 0.0)
    quicker = [(tokens, seconds / 2) for tokens, seconds in plain]
    assert change(plain, quicker) == pytest.approx((1.0, 1.0, 1.0))
    mean, low, high = change(plain, [(10, 2.0), *plain[1:]])
    assert low < mean < high <= 0.0
