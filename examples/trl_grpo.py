"""TRL's ``GRPOTrainer`` with rollouts through Draftwood.

    pip install trl
    python examples/trl_grpo.py [MODEL]

``rollout_func`` is TRL's own hook: it gets the prompts, each as often as its group has answers, and
returns token ids and log probabilities. The trainer's optimizer changes the weights in place, which
the engine notices. docs/rl.md has more.
"""

import sys
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

import draftwood
from draftwood import Engine, Request, SamplingParams

PROMPTS = ["Question: What is the capital of France?\nAnswer:", "User: Hello!\n\nAssistant:"]
METHOD = "pld:context=memory"  # "auto:also=memory" for speed
STEPS = 4


def reward(completions: list[str], **_: Any) -> list[float]:
    """A toy: the share of the letters that are vowels."""
    found = []
    for text in completions:
        letters = [each for each in text.lower() if each.isalpha()]
        found.append(sum(each in "aeiou" for each in letters) / max(1, len(letters)))
    return found


class Rollouts:
    """A trainer's ``rollout_func``: one engine, and so one memory, for the whole training."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.engine = Engine(model, METHOD, tokenizer)
        self.plain = Engine(model, "ar", tokenizer)
        self.seed = 0
        self.same: list[bool] = []

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        trains = self.model.training
        self.model.eval()
        requests = []
        for prompt in prompts:
            sampling = SamplingParams(temperature=trainer.temperature, seed=self.seed)
            length = trainer.max_completion_length
            requests.append(Request(prompt, length, sampling, logprobs=0))
            self.seed += 1  # answers of a group differ by their seeds alone
        answers = [done.checked() for done in self.engine.generate(requests)]
        plain = [done.tokens for done in self.plain.generate(requests)]
        self.model.train(trains)
        self.same.append(plain == [done.tokens for done in answers])
        tokens = sum(done.tally.committed for done in answers)
        steps = sum(done.tally.steps for done in answers)
        print(f"{len(answers)} rollouts, {tokens / steps:.2f} tokens a forward")
        return {
            "prompt_ids": [trainer.processing_class(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": [list(done.tokens) for done in answers],
            "logprobs": [[each.logprob for each in done.logprobs] for done in answers],
        }


def main() -> None:
    loaded = draftwood.load(*sys.argv[1:2])
    tokenizer = loaded.tokenizer
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    rollouts = Rollouts(loaded.model, tokenizer)
    with TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=32,
            temperature=1.0,
            learning_rate=2e-4,
            bf16=False,
            use_cpu=loaded.model.device.type == "cpu",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=loaded.model,
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": PROMPTS * 8}),
            processing_class=tokenizer,
            rollout_func=rollouts,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    history = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print(f"rewards: {', '.join(f'{each:.3f}' for each in history)}")
    print(f"same tokens: {all(rollouts.same)} in {len(rollouts.same)} rollouts")


if __name__ == "__main__":
    main()
