"""Stand-ins for a grammar library: matchers of three makes, and the processor that drives them."""

from typing import Any

import torch
from transformers import LogitsProcessor

STOP = 12


def allowed(seen: tuple[int, ...], rule: int) -> list[int]:
    """Tokens that may follow those accepted so far; what is seen once is felt ever after."""
    turn = sum(i * token for i, token in enumerate(seen, start=1)) % 5
    found = [t for t in range(STOP) if (t + turn + rule) % 3]
    return [*found, STOP] if turn == 4 and len(seen) > 8 else found


class Matcher:
    """Accepts tokens one by one, and none once it has terminated."""

    def __init__(self, rule: int) -> None:
        self.rule = rule
        self.seen: list[int] = []

    def is_terminated(self) -> bool:
        return STOP in self.seen

    def accept_token(self, token: int) -> bool:
        if self.is_terminated() or token not in allowed(tuple(self.seen), self.rule):
            return False
        self.seen.append(token)
        return True

    def fill(self, mask: torch.Tensor, row: int) -> None:
        mask[row] = True
        mask[row, allowed(tuple(self.seen), self.rule)] = False


class Sealed(Matcher):
    """One whose state is out of sight and out of reach, as that of a C++ object is."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")


class Forking(Sealed):
    """One with a way of its own to be copied."""

    def fork(self) -> "Forking":
        found = Forking(self.rule)
        found.seen = list(self.seen)
        return found


class Rolling(Sealed):
    """One that can be taken back instead."""

    def rollback(self, num_tokens: int = 1) -> None:
        assert 0 < num_tokens <= len(self.seen)
        del self.seen[-num_tokens:]


class Grammar(LogitsProcessor):
    """What xgrammar's processor for transformers does, call by call.

    Args:
        make: of the matchers.
        rules: one for each row of the batch, or one for all rows.
    """

    def __init__(self, make: type[Matcher], *rules: int) -> None:
        self.make = make
        self.rules = list(rules)
        self.matchers: list[Matcher] = []
        self.prefilled = False
        self.mask: Any = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not self.matchers:
            rules = self.rules if len(self.rules) > 1 else self.rules * len(input_ids)
            assert len(rules) == len(input_ids)
            self.matchers = [self.make(rule) for rule in rules]
            self.mask = torch.zeros(scores.shape, dtype=torch.bool)
        assert len(self.matchers) == len(input_ids)
        if not self.prefilled:
            self.prefilled = True
        else:
            for matcher, row in zip(self.matchers, input_ids, strict=True):
                if not matcher.is_terminated():
                    assert matcher.accept_token(int(row[-1]))
        for i, matcher in enumerate(self.matchers):
            if not matcher.is_terminated():
                matcher.fill(self.mask, i)
        return scores.masked_fill_(self.mask, -torch.inf)


class Twin(LogitsProcessor):
    """The same as a function of the ids."""

    keeps_state = False

    def __init__(self, rule: int, prompt_length: int) -> None:
        self.rule = rule
        self.prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        seen = tuple(input_ids[0, self.prompt_length :].tolist())
        if STOP in seen:
            seen = seen[: seen.index(STOP)]
        mask = torch.ones(scores.shape[-1], dtype=torch.bool)
        mask[allowed(seen, self.rule)] = False
        return scores.masked_fill(mask, -torch.inf)
