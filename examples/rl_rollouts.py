"""Rollouts of a small GRPO loop: the weights move in every epoch, drafts come from earlier ones.

    python examples/rl_rollouts.py [MODEL]

In each epoch a group of answers is sampled for every prompt, rewarded, and a few optimizer steps
follow. The answers are drafted from a memory of earlier epochs' answers (docs/memory.md). Text of
older weights stays a good draft where answers are alike, and changes no token. The engine notices
weights that an optimizer changes in place. docs/rl.md has more.

Two comparisons in each epoch: the sampled answers with plain decoding from the same seeds, and a
greedy answer with ``generate`` of an untouched copy that is given the new weights.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch

import draftwood
from draftwood import Completion, Engine, Request, SamplingParams

PROMPTS = ["Question: What is the capital of France?\nAnswer:", "User: Hello!\n\nAssistant:"]
GROUP = 8
TOKENS = 24
EPOCHS = 6
OPTIMIZER_STEPS = 4
LEARNING_RATE = 1e-3  # so that the small model moves far in a few epochs
CLIP = 0.2

# The memory is the only source here, so that the growth is the memory's alone. Use
# "auto:also=memory" for speed.
METHOD = "pld:context=memory"


def reward(answer: Completion) -> float:
    """A toy: the share of the letters that are vowels."""
    letters = [each for each in answer.text.lower() if each.isalpha()]
    return sum(each in "aeiou" for each in letters) / max(1, len(letters))


def requests(epoch: int) -> list[Request]:
    """A group for each prompt; every request of every epoch has a seed of its own."""
    count = GROUP * len(PROMPTS)
    return [
        Request(PROMPTS[i // GROUP], TOKENS, SamplingParams(1.0, seed=count * epoch + i))
        for i in range(count)
    ]


def advantages(rewards: torch.Tensor) -> torch.Tensor:
    """Rewards ``[prompts x group]`` relative to their group's."""
    groups = rewards.view(-1, GROUP)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, keepdim=True) + 1e-4)).flatten()


def padded(texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[torch.Tensor, ...]:
    """Prompts with answers as ids ``[n, L]``, and where an answer's tokens are predicted."""
    width = max(len(prompt) + len(answer) for prompt, answer in texts)
    ids = torch.zeros(len(texts), width, dtype=torch.int64)
    answered = torch.zeros(len(texts), width - 1, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(texts):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor([*prompt, *answer])
        answered[row, len(prompt) - 1 : end - 1] = True
    return ids, answered


def log_probs(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Log probability of every token but the first ``[n, L - 1]``, by the weights of now."""
    logits: torch.Tensor = model(input_ids=ids).logits[:, :-1]
    return logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]


def train(
    model: Any, optimizer: Any, ids: torch.Tensor, answered: torch.Tensor, gains: torch.Tensor
) -> None:
    """A few steps of GRPO's clipped objective on one epoch's answers."""
    model.train()
    before = None
    for _ in range(OPTIMIZER_STEPS):
        now = log_probs(model, ids)
        before = now.detach() if before is None else before
        ratio = (now - before).exp()
        kept = ratio.clamp(1 - CLIP, 1 + CLIP)
        gain = torch.minimum(ratio * gains[:, None], kept * gains[:, None])
        optimizer.zero_grad()
        loss: Any = -gain[answered].mean()
        loss.backward()
        optimizer.step()
    model.eval()


def main() -> None:
    loaded, copy = draftwood.load(*sys.argv[1:2]), draftwood.load(*sys.argv[1:2])
    model = loaded.model
    untouched: Any = copy.model  # never attached
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    engine = Engine(model, METHOD, loaded.tokenizer)
    plain = Engine(model, "ar", loaded.tokenizer)
    prompts = [loaded.tokenizer(text)["input_ids"] for text in PROMPTS]
    for epoch in range(EPOCHS):
        asked = requests(epoch)
        answers = [done.checked() for done in engine.generate(asked)]
        tokens = sum(done.tally.committed for done in answers)
        steps = sum(done.tally.steps for done in answers)
        rewards = torch.tensor([reward(done) for done in answers])
        print(f"epoch {epoch}: {tokens / steps:.2f} tokens a forward, reward {rewards.mean():.3f}")

        same = [done.tokens for done in plain.generate(asked)] == [d.tokens for d in answers]
        untouched.load_state_dict(model.state_dict())
        [greedy] = engine.generate([Request(PROMPTS[0], TOKENS)])
        prompt = torch.tensor([prompts[0]], device=untouched.device)
        expected = untouched.generate(
            prompt, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0
        )
        independent = expected[0, len(prompts[0]) :].tolist() == list(greedy.tokens)
        print(f"  same tokens: {same}; greedy as an untouched copy: {independent}")

        texts = [(prompts[i // GROUP], done.tokens) for i, done in enumerate(answers)]
        ids, answered = (each.to(model.device) for each in padded(texts))
        train(model, optimizer, ids, answered, advantages(rewards).to(model.device))


if __name__ == "__main__":
    main()
