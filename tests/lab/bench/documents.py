"""Documents made by code, as JSON and as read."""

from typing import Any

from draftwood.lab.bench.document import SCHEMA, Document, read

TASKS = ("code", "chat")


def between(middle: float | None, margin: float = 0.1) -> dict[str, float | None]:
    """A median and its interval."""
    if middle is None:
        return {"median": None, "low": None, "high": None}
    return {"median": middle, "low": middle - margin, "high": middle + margin}


def ratio(value: float | None, margin: float = 0.05) -> dict[str, float | None]:
    """A pooled ratio and its interval."""
    found = between(value, margin)
    return {"value": found["median"], "low": found["low"], "high": found["high"]}


def metrics(speedup: float | None = 2.0, tau: float | None = 2.5, **others: Any) -> dict[str, Any]:
    """What a drafting method comes to over some rows."""
    return {
        "prompts": 4,
        "tokens": 200,
        "draft_calls": 60,
        "target_calls": 80,
        "identical": 4,
        "compared": 4,
        "texts": 4,
        "looping_texts": 1,
        "repeated_8grams": ratio(0.3),
        "tokens_per_second": between(None if speedup is None else 10 * speedup, 1.0),
        "speedup_vs_ar": between(speedup),
        "speedup_vs_hf": between(None if speedup is None else speedup / 0.8),
        "ttft_ms": between(30.0, 2.0),
        "tpot_ms": between(None if speedup is None else 100 / speedup, 2.0),
        "overhead_ms_per_step": between(1.5),
        "mean_acceptance_length": ratio(tau),
        "acceptance_rate": ratio(0.3),
        "draft_efficiency": ratio(0.75),
        "predicted_speedup": 1.9,
        "predicted_speedup_with_verification": 1.8,
        "routes": {"spine": 80},
        "kinds": {"context": 50},
        "phases": {"target": 6.0, "draft": 3.0, "verify": 0.5, "commit": 0.3, "learn": 0.2},
        "overhead_percent": 40.0,
        "peak_memory_mb": 512.0,
        "time_share": {
            "target": 0.6,
            "draft": 0.3,
            "verify": 0.05,
            "commit": 0.03,
            "learn": 0.02,
            "other": 0.0,
        },
        "acceptance_by_depth": [
            {"depth": d, "offered": 90 - d, "reached": 45 // d, "rate": ratio(0.8 / d)}
            for d in range(1, 5)
        ],
        "acceptance_by_source": {
            "adjacency": {"drafted": 800, "accepted": 120, "rate": ratio(0.15)},
            "context": {"drafted": 1400, "accepted": 700, "rate": ratio(0.5)},
        },
        "acceptance_by_rank": [
            {"depth": d, "rank": r, "offered": 40 // d, "accepted": 24 // (d * r)}
            for d in range(1, 5)
            for r in range(1, 4)
        ],
        **others,
    }


def plain(speedup: float = 1.0, **others: Any) -> dict[str, Any]:
    """What a method that drafts nothing comes to."""
    return metrics(
        speedup,
        1.0,
        acceptance_rate=ratio(None),
        draft_efficiency=ratio(0.0, 0.0),
        acceptance_by_depth=[],
        acceptance_by_source={},
        acceptance_by_rank=[],
        time_share={"target": 0.9, "draft": 0, "verify": 0, "commit": 0, "learn": 0, "other": 0.1},
        **others,
    )


def peer(speedup: float = 0.8) -> dict[str, Any]:
    """What another library's plain decoding comes to."""
    return {**plain(speedup), "time_share": {}, "phases": {}, "peak_memory_mb": None}


def forecast(tenths: dict[str, dict[int, tuple[int, int]]], **others: Any) -> dict[str, Any]:
    """Predictions: of each source, candidates and how many were accepted, by tenth.

    Every probability is in the middle of its tenth.
    """
    by_source = {}
    for source, found in tenths.items():
        bins = [
            {"candidates": n, "predicted": (k + 0.5) / 10 * n, "accepted": hits}
            for k, (n, hits) in ((k, found.get(k, (0, 0))) for k in range(10))
        ]
        predicted, accepted = (sum(each[key] for each in bins) for key in ("predicted", "accepted"))
        by_source[source] = {
            "candidates": sum(each["candidates"] for each in bins),
            "predicted": predicted,
            "accepted": accepted,
            "error": ratio(predicted / accepted - 1 if accepted else None),
            "bins": bins,
        }
    return {
        "steps": 80,
        "predicted": 210.0,
        "committed": 200,
        "error": ratio(0.05),
        "by_source": by_source,
        **others,
    }


def reliability() -> dict[str, Any]:
    """Figures of 80 steps, 20 of them late; in late steps only ``context`` has candidates."""
    return {
        "all_steps": forecast({"adjacency": {0: (400, 16), 4: (40, 20)}, "context": {8: (20, 17)}}),
        "late_steps": forecast({"context": {9: (10, 8)}}, steps=20, predicted=44.0, committed=40),
    }


def method(whole: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A method's entry: the same figures in every task, a fifth lower without looping outputs.

    A method that drafts predicts.
    """
    tau = whole["mean_acceptance_length"]["value"]
    calm = {
        **whole,
        "looping_texts": 0,
        "repeated_8grams": ratio(0.02),
        "mean_acceptance_length": ratio(tau and 0.8 * tau),
        "prompts": 3,
    }
    part = {**whole, "without_looping": calm}
    return {
        **part,
        "by_set": {"made": part},
        "by_task": dict.fromkeys(TASKS, part),
        "by_seed": {},
        "settings": {"budget": 16},
        "near_ties": 0,
        "rounding_prompts": 0,
        "fault_prompts": 0,
        "divergences": [],
        "rows": [],
        "reliability": reliability() if whole["acceptance_by_source"] else None,
        **others,
    }


def excerpt(name: str, id: str = "made/0", task: str = "code", **others: Any) -> dict[str, Any]:
    """Two steps: three nodes accepted of five and a bonus, then nothing accepted."""
    return {
        "method": name,
        "id": id,
        "set": "made",
        "task": task,
        "prompt": "def add(a, b):\n",
        "steps": [
            {
                "route": "spine",
                "drafted": 5,
                "depth": 4,
                "committed": [
                    {"text": "    ", "source": "context"},
                    {"text": "return", "source": "context"},
                    {"text": " a", "source": "adjacency"},
                    {"text": " +", "source": ""},
                ],
                "rejected": [" -"],
            },
            {
                "route": "bypass",
                "drafted": 1,
                "depth": 1,
                "committed": [{"text": " b", "source": ""}],
                "rejected": ["\n"],
            },
        ],
        "trees": [
            {
                "step": 0,
                "parents": [-1, 0, 1, 2, 3, 0],
                "texts": ["\n", "    ", "return", " a", " -", "pass"],
                "sources": ["root", "context", "context", "adjacency", "context", "adjacency"],
                "path": [1, 2, 3],
                "bonus": " +",
            },
            {
                "step": 1,
                "parents": [-1, 0],
                "texts": [" +", "\n"],
                "sources": ["root", "adjacency"],
                "path": [],
                "bonus": " b",
            },
        ],
        **others,
    }


def document(**others: Any) -> Document:
    """The document of :func:`parsed`."""
    return read(parsed(**others))


def parsed(**others: Any) -> dict[str, Any]:
    """The JSON of ``ar``, ``hf`` and two drafting methods."""
    methods = {
        "ar": method(plain()),
        "goose:budget=16": method(metrics(2.0)),
        "pld": method(metrics(1.4, 1.6)),
        "hf": method(peer()),
    }
    found = {
        "schema": SCHEMA,
        "complete": True,
        "provenance": {
            "command": "draftwood bench --prompts made.jsonl",
            "date": "2025-01-31T12:00:00+00:00",
            "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
            "versions": {"draftwood": "1.0", "torch": "2.11"},
            "hardware": {
                "cpu": "A Processor",
                "cpu_capability": "AVX2",
                "cores": 2,
                "gpu": None,
            },
            "threads": 2,
            "model": {"name": "embedded", "parameters": 1000, "dtype": "float32"},
            "prompts": [{"file": "made.jsonl", "sha256": "0" * 64}],
            "settings": {"max_new_tokens": 48, "repeats": 1},
        },
        "methods": methods,
        "best": None,
        "missing": {"hf-assistant": "no assistant fits"},
        "excerpts": [excerpt("goose:budget=16"), excerpt("pld"), excerpt("ar", trees=[])],
        **others,
    }
    for name, entry in found["methods"].items():
        entry.setdefault("name", name)
    return found
