"""A model on this machine: whether it can branch, its requests' memory, and what drafts for it."""

from draftwood.engine.engine import Engine
from draftwood.errors import DraftwoodError
from draftwood.lab.doctor.finding import Advice, Finding
from draftwood.lab.request_memory import RequestMemory
from draftwood.methods.shipped_models import shipped_for
from draftwood.models import Loaded
from draftwood.runner.attach import attach
from draftwood.runner.runner import Runner


def attached(loaded: Loaded) -> tuple[Runner | None, Finding]:
    """Attach a model, which runs the self-test; the runner is None if it is refused."""
    try:
        runner = attach(loaded.model)
    except DraftwoodError as error:
        asked = f'from transformers import pipeline as p; print(p(model="{loaded.name}")("PROMPT"))'
        help_ = Advice("decode it without Draftwood", f"python -c '{asked}'")
        return None, Finding("trees", f"refused: {error}", "failed", (help_,))
    text = "the self-test passed: logits of a tree are those of its paths"
    return runner, Finding("trees", text)


def room_finding(runner: Runner, free: int | None, nodes: int) -> Finding:
    """How many requests fit into the memory that is free, beside the weights.

    Args:
        runner: of the model.
        free: bytes; None: unknown.
        nodes: of the largest tree, root included.
    """
    info = runner.info
    memory = RequestMemory(info.token_bytes, info.slot_bytes, info.node_bytes, nodes, runner.block)
    return Finding("requests", memory.told(free))


def drafts_finding(engine: Engine, model: str) -> Finding:
    """What an engine of ``auto`` drafts with, and what else it could draft with.

    Args:
        engine: with the method ``auto``.
        model: its name, for commands.
    """
    named = {str(spec.model) for spec in engine.method.drafters.values() if spec.model}
    text = ", ".join(["copies of the context", "the target's earlier predictions", *sorted(named)])
    shipped = shipped_for(engine.target.info.fingerprint)
    if shipped is not None:
        parts = ", ".join(sorted(shipped.parts))
        return Finding("drafts", f"{text}; shipped for {shipped.name}: {parts}")
    if named:
        return Finding("drafts", text)
    help_ = (
        Advice(
            "a small model of its family, or a head trained for it, drafts more",
            f"draftwood drafters --model {model} --draft SMALL",
        ),
        Advice(
            "a prepared table holds what the model says after frequent pairs of tokens",
            f"draftwood harvest TABLE --model {model} --text FILE",
        ),
    )
    return Finding("drafts", f"{text}; nothing is shipped for this model", "note", help_)
