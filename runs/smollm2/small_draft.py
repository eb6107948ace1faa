"""Distils a small draft model from SmolLM2-135M-Instruct, and compares it with the EAGLE-3 head.

Usage: python runs/smollm2/small_draft.py DATA OUT HEAD [--model smollm2] [--tokens 3000000]

DATA is the text that the head in the directory HEAD was trained on. The draft model is a Llama
model of two layers with the target's width. Its embedding and output matrix are the target's and
stay as they are; it learns, and is judged, over the head's draft vocabulary. Its layers begin as
the target's first and last. OUT/small_draft/model gets the model, which `--draft` and the assisted
generation of transformers load, and provenance.json with the figures that decide: of both, the
share of held-out positions at which the likeliest token is the target's, the mean number of
accepted tokens of a chain of four, and the parameters that are read for a token. An interrupted run
resumes.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from draftwood import models
from draftwood.drafters.eagle3.checkpoint import load_head
from draftwood.drafters.eagle3.head import Eagle3Head
from draftwood.lab.train.batches import held_out_rows, parse_mixture
from draftwood.lab.train.corpus import Domain
from draftwood.lab.train.eagle3 import ATTENTION
from draftwood.lab.train.evaluate import drafted_chains
from draftwood.lab.train.export import export_model
from draftwood.lab.train.head_loss import head_labels
from draftwood.lab.train.loss import Labels, chunked_loss
from draftwood.lab.train.recipe import HEAD_RECIPE
from draftwood.lab.train.run_options import RunOptions
from draftwood.lab.train.teacher import Teacher
from draftwood.lab.train.text_model import last_hidden
from draftwood.lab.train.training_run import TrainingRun
from draftwood.protocols import TargetInfo

MIXTURE = "answers=0.8,code=0.08,chat=0.06,prose=0.02,wiki=0.02,math=0.02"
CHAIN, LENGTH, ROWS = 4, 512, 32


class Student:
    """A small Llama model with the target's embedding, and the draft ids of a head."""

    def __init__(self, teacher: Teacher, head: Eagle3Head, layers: tuple[int, ...]) -> None:
        self.ids = head.to_target(torch.arange(len(head.d2t)))
        values = teacher.config.to_dict() | {"num_hidden_layers": len(layers)}
        self.model = LlamaForCausalLM(LlamaConfig(**values))
        theirs = teacher.model.state_dict()
        kept = {name: theirs[name] for name in self.model.state_dict() if ".layers." not in name}
        for own, layer in enumerate(layers):
            start = f"model.layers.{layer}."
            kept |= {
                f"model.layers.{own}.{name.removeprefix(start)}": tensor
                for name, tensor in theirs.items()
                if name.startswith(start)
            }
        self.model.load_state_dict(kept)
        self.model.lm_head.weight.requires_grad_(False)
        self.output = self.model.lm_head.weight[self.ids]

    @property
    def read(self) -> int:
        """Parameters that are read for a token, if only the draft ids are ranked."""
        learnt = (each for each in self.model.parameters() if each.requires_grad)
        return sum(parameter.numel() for parameter in (self.output, *learnt))


class StudentLoss:
    """``KL(target || student)`` over the draft ids, in nats per token."""

    def __init__(self, student: Student, teacher: Teacher, head: Eagle3Head, mixed: bool) -> None:
        self._student, self._teacher, self._mixed = student, teacher, mixed
        self._labels = head_labels(head)

    def __call__(self, given: Tensor, wanted: Tensor, step: int) -> Tensor:  # noqa: ARG002
        """See :class:`draftwood.lab.train.trainer.Loss`."""
        hidden = last_hidden(self._student.model, given, self._mixed)
        last = self._teacher.read(given, (0,), self._mixed).last.flatten(0, 1)

        def labels(part: slice) -> Labels:
            log_q, weight = self._labels.of(self._teacher.log_probs(last[part]))
            q = log_q.exp()
            return Labels(q, (q * log_q).sum(1), weight)

        weights = torch.full((1, len(last)), 1.0 / wanted.numel())
        return chunked_loss(hidden[None], self._student.output, weights, labels)


@torch.inference_mode()
def judged(student: Student, teacher: Teacher, domain: Domain) -> dict[str, float]:
    """Share of likeliest tokens that are the target's, and accepted tokens of chains of four."""
    hits = []
    for rows in torch.split(torch.from_numpy(held_out_rows(domain, LENGTH, ROWS)), 2):
        hidden = student.model.model(input_ids=rows).last_hidden_state
        drafted = (hidden @ student.output.T).argmax(-1)
        wanted = teacher.log_probs(teacher.read(rows, (0,)).last.flatten(0, 1)).argmax(-1)
        hits.append(student.ids[drafted] == wanted.view(rows.shape))
    right = torch.cat(hits).double()
    chains = right.unfold(1, CHAIN, 1).cumprod(-1).sum(-1)
    return {
        "greedy": round(right.mean().item(), 4),
        "accepted_tokens": round(chains.mean().item(), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=3_000_000)
    parser.add_argument("--mixture", default=MIXTURE)
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--stop-after", type=int)
    given = parser.parse_args()
    loaded = models.load(given.model, dtype="float32", device="cpu")
    tokenizer = loaded.tokenizer
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    embedding = loaded.model.get_input_embeddings()
    output = loaded.model.get_output_embeddings()  # type: ignore[no-untyped-call]
    teacher = Teacher(loaded.model, Path(given.model).name)
    info = TargetInfo(
        teacher.vocab_size,
        teacher.config.max_position_embeddings,
        teacher.layers,
        teacher.config.hidden_size,
        torch.device("cpu"),
        torch.float32,
    )
    head = load_head(given.head, info, embedding, output)
    head.set_attn_implementation(ATTENTION)
    student = Student(teacher, head, (0, teacher.layers - 1))
    run = TrainingRun(
        given.data,
        given.out,
        parse_mixture(given.mixture),
        torch.device("cpu"),
        None,
        "small_draft.py",
    )
    (answers,) = (each for each in run.domains(tokenizer) if each.name == "answers")

    def evaluate() -> dict[str, Any]:
        return {
            "draft": judged(student, teacher, answers) | {"parameters_read": student.read},
            "head": asdict(drafted_chains(head, teacher, CHAIN, answers).acceptance())
            | {"parameters_read": sum(parameter.numel() for parameter in head.parameters())},
        }

    def export(model: LlamaForCausalLM, record: dict[str, Any], directory: Path) -> None:
        export_model(model, tokenizer, record, directory, loaded.model.generation_config)

    # As the head was trained: runs/smollm2/train.sh and head.py.
    recipe = replace(
        HEAD_RECIPE,
        tokens=given.tokens,
        rows=given.rows,
        length=given.length,
        warmup=40,
        decay_share=0.25,
        adam_rate=3e-3,
    )
    run.train(
        "small_draft",
        student.model,
        tokenizer,
        recipe,
        RunOptions(precision="bfloat16", micro_tokens=512, stop_after=given.stop_after),
        {"target": teacher.fingerprint()},
        StudentLoss(student, teacher, head, mixed=True),
        evaluate,
        export,
    )


if __name__ == "__main__":
    main()
