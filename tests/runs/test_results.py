"""Pages of results, from runs made by hand; and the pages and files in the repository."""

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from draftwood.lab.bench.document import Divergence
from draftwood.lab.bench.figures import RunRow
from runs.results_page import serving
from runs.results_page.page import COSTS as COST_SECTION
from runs.results_page.page import LOSSLESS, RECURRENT, SECTIONS, page, pages
from runs.results_page.paper_tables import BUDGETS
from runs.results_page.papers import CLAIMS, verdict
from runs.results_page.readme import BEGIN, END, with_speeds
from runs.results_page.run_page import TABLES, run_page
from runs.results_page.speed import shortfalls
from runs.results_page.stored import LARGEST, Runs, load
from tests.runs.stored_runs import BUSY, ROOT, bench, committing, origin, stored, timed


def compared(*identical: bool | None) -> list[RunRow]:
    rows = timed(*[10.0] * len(identical))
    return [replace(row, identical=same) for row, same in zip(rows, identical, strict=True)]


def difference(*, near_tie: bool) -> Divergence:
    return Divergence("humaneval/0", 0, 0, 0, 3, 1, 2, 0.5, 1e-5, near_tie)


def law(p_value: float, *methods: str, commit: str = "c0ffee" + 34 * "0") -> dict[str, Any]:
    """Output of ``draftwood check-lossless --json``."""
    checks: list[dict[str, Any]] = []
    for name in methods:
        sampled = {"statistic": 12.34, "degrees": 9, "p_value": p_value, "accepted": 77}
        checks += [
            {"subject": name, "passed": True, "kind": "exact", "difference": 1.1e-16, "text": ""},
            {"subject": name, "passed": p_value > 1e-3, "kind": "sampled", **sampled},
        ]
    settings = {"samples": 1000, "temperature": 0.8, "top_k": 4}
    found = origin(settings=settings, git={"commit": commit, "dirty": False})
    return {"provenance": found, "lossless": True, "checks": checks}


def test_pages_in_the_repository_are_those_of_its_runs() -> None:
    """Made by ``python runs/results.py``."""
    made = pages(load(ROOT / "runs" / "data"))
    written = {str(path.relative_to(ROOT)) for path in (ROOT / "runs" / "data").glob("*.md")}
    assert written | {"docs/results.md"} == made.keys()
    for path, text in made.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, path
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == with_speeds(readme, load(ROOT / "runs" / "data"))


LARGER = {"runs/smollm2/answers.jsonl.gz": 5_000_000}
"""Training text that took hours to generate."""


def test_no_file_of_docs_and_runs_is_large_and_weights_are_in_assets_only() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:
        pytest.skip("only a checkout tells which files are tracked")
    large = [
        name
        for name in listed
        if name.startswith(("docs/", "runs/"))
        and (ROOT / name).stat().st_size > LARGER.get(name, LARGEST)
    ]
    assert not large
    weights = [name for name in listed if name.endswith((".safetensors", ".bin", ".pt", ".gguf"))]
    assert all(name.startswith("draftwood/assets/") for name in weights)


def test_an_entry_of_the_log_has_at_most_six_lines() -> None:
    _, *entries = (ROOT / "docs" / "LOG.md").read_text(encoding="utf-8").split("\n## ")
    for entry in entries:
        title, *lines = entry.splitlines()
        assert title.startswith("20"), title
        text = [line for line in lines if line]
        assert 1 <= len(text) <= 6, title
        assert max(map(len, (title, *text))) <= 100, title


def test_every_comparison_with_plain_decoding_is_counted() -> None:
    methods = {
        "ar": compared(None, None),
        "goose": compared(True, True),
        "talon": compared(False, True),
        "sd": compared(False, True),
    }
    wrong = {"talon": [difference(near_tie=True)], "sd": [difference(near_tie=False)]}
    sampled = bench({"ar": compared(None), "goose": compared(True)}, provenance=origin(0.8))
    runs = {
        "equality_greedy_1": stored(bench(methods, wrong)),
        "equality_sampled_1": stored(sampled),
        "equality_law_model": stored(law(0.314, "rrsw", "block"), "equality.sh law"),
    }
    text = page(runs)
    assert (
        "**embedded (6.2 M, float32): 5 of 7 outputs have the tokens of plain decoding, "
        "1 are near ties, 1 are faults.**"
    ) in text
    assert "**2 of 2 tests of a method's distribution pass.**" in text
    assert "| embedded (6.2 M, float32) | greedy | batch 1 | 4 | 6 | 1 | 1 | c0ffee0 |" in text
    assert "| embedded (6.2 M, float32) | temperature 0.8 | batch 1 | 1 | 1 | 0 | 0 |" in text
    assert "| 2 | 2 | 0.31 to 0.31 | c0ffee0 |" in text
    own = run_page("equality_greedy_1", runs["equality_greedy_1"])
    assert "| `goose` | 2 / 2 | 0 | 0 |" in own
    assert "| `talon` | 1 / 2 | 1 | 0 |" in own
    assert "| `sd` | 1 / 2 | 0 | **1** |" in own
    assert "| `rrsw` | 1e-16 | 12.3 | 9 | 0.31 | 77 |" in run_page(
        "equality_law_model", runs["equality_law_model"]
    )


def test_totals_are_of_one_model_and_failures_are_shown() -> None:
    failed = stored(law(1e-5, "rrsw"), "equality.sh law")
    runs = {
        "equality_greedy_1": stored(bench({"ar": compared(None), "goose": compared(True)})),
        "equality_law_model": failed,
        "smollm2_greedy": stored(bench({"ar": compared(None), "goose": compared(False)})),
    }
    runs["smollm2_greedy"]["provenance"]["model"] = {
        **runs["smollm2_greedy"]["provenance"]["model"],
        "name": "smollm2",
    }
    text = page(runs)
    assert "**embedded (6.2 M, float32): 1 of 1 outputs" in text
    assert "**smollm2 (6.2 M, float32): 0 of 1 outputs" in text
    assert "**0 of 1 tests of a method's distribution pass.**" in text
    assert "| **1e-05** |" in run_page("equality_law_model", failed)


TOKENS_PER_SECOND = {
    "ar": 10,
    "hf": 8,
    "llamacpp:threads=1": 50,
    "pld": 12,
    "goose": 20,
    "talon": 9,
    "auto": 16,
    "auto:drafter=model": 24,
}
SPEEDS = {name: timed(*[speed] * 6) for name, speed in TOKENS_PER_SECOND.items()}


def test_speed_ups_are_one_row_a_run_with_the_fastest_of_each_kind() -> None:
    text = page({"every_speed_greedy_1": stored(bench(SPEEDS))})
    header = (
        "| model, sampling, batch | prompts | `auto` | best variant of `auto` | "
        "best paper method | `pld` | transformers | llama.cpp |"
    )
    row = (
        "| [embedded (6.2 M, float32), greedy, batch 1](../runs/data/every_speed_greedy_1.md) | "
        "6 | 1.60 (1.60-1.60) | `auto:drafter=model` 2.40 (2.40-2.40) | `goose` 2.00 (2.00-2.00) | "
        "1.20 (1.20-1.20) | `hf` 0.80 (0.80-0.80) | `llamacpp:threads=1` 5.00 (5.00-5.00) |"
    )
    assert header in text
    assert row in text


def test_losses_of_auto_are_listed() -> None:
    mbpp = TOKENS_PER_SECOND | {"auto": 5}
    slow = {m: [*rows, *timed(mbpp[m], set="mbpp", first=9)] for m, rows in SPEEDS.items()}
    run = stored(bench(slow), "paper_goose.sh speed")
    text = page({"every_speed_greedy_1": run})
    assert "`auto` is 0.80x `goose`; `auto` is 0.32x `llamacpp:threads=1`; " in text
    assert "`auto` is slower than plain decoding on mbpp 0.50x" in text
    assert "slower than plain decoding beyond the interval: `talon`." in text
    own = run_page("every_speed_greedy_1", run)
    assert "Made by `TOKENS=64 runs/paper_goose.sh speed` at commit `c0ffee0` on 2026-01-02" in own
    assert "| × `ar` by set | humaneval | mbpp |" in own
    fast = {"ar": timed(10, 10, looping=1), "auto": timed(16, 16)}
    run = stored(bench(fast))
    assert "In no run above is `auto` slower" in page({"every_speed_greedy_1": run})
    assert "1 of 2 outputs of `ar` loop." in run_page("every_speed_greedy_1", run)


def test_a_disturbed_run_has_no_times() -> None:
    run = stored(bench(SPEEDS, provenance=origin(other_processes=BUSY)))
    assert run["times"] is False
    for entry in run["methods"].values():
        for cut in (entry, entry["without_looping"], *entry["by_set"].values()):
            assert cut["tokens_per_second"]["median"] is None
            assert cut["speedup_vs_ar"]["median"] is None
    text = page({"every_speed_greedy_1": run})
    assert text.count("Not measured at a commit; to measure it: `runs/every_method.sh") == 2
    assert "tok/s" not in run_page("every_speed_greedy_1", run)


@pytest.mark.parametrize(
    ("ours", "low", "high", "expected"),
    [
        (0.9, 1.05, 1.2, "**against the paper: a loss here**"),
        (1.02, 1.05, 1.2, "less than in the paper"),
        (1.045, 1.05, 1.2, "as in the paper"),
        (1.3, 1.05, 1.2, "more than in the paper"),
        (0.8, 0.92, 1.14, "less than in the paper"),
        (None, 1.0, 1.0, "-"),
    ],
)
def test_a_ratio_is_compared_with_the_papers(
    ours: float | None, low: float, high: float, expected: str
) -> None:
    assert verdict(ours, low, high) == expected


def test_claims_of_the_papers_stand_beside_our_ratios() -> None:
    rate = {"ar": 1, "goose": 9, "iso3": 6, "pld": 8, "tr:budget=59": 4}
    head = {"ar": timed(1), "eagle3": timed(20), "talon:drafter=eagle3": timed(22)}
    books = {"ar": timed(10, set="pg_prompts"), "fixed-tree": timed(20, set="pg_prompts")}
    books |= {"dynatree:max_depth=10": timed(8, 6, set="pg_prompts", looping=1)}
    runs: Runs = {
        "tau_greedy": stored(bench({m: committing(timed(10), n) for m, n in rate.items()})),
        "draft_tau_t0": stored(bench(head)),
        "dynatree_long_pg": stored(bench(books)),
    }
    text = page(runs)
    own = "[tau_greedy](../runs/data/tau_greedy.md)"
    assert (
        "| τ of `goose` over `iso3` | all | 1.12 to 1.33 (Table 1) | 1.50 | 1.50 | more than"
        in text
    )
    assert f"1.16 to 1.45 (Section D.2) | 1.12 | 1.12 | less than in the paper | {own} |" in text
    assert "| 1.03 to 1.18 (Table 1, 5 models, 6 sets) | 1.10 | 1.10 | as in the paper |" in text
    assert (
        "`ar` | pg_prompts | 1.70 (Table 1) | 0.70 | 0.80 | **against the paper: a loss here** |"
        in text
    )
    assert "`sd:budget=5` | pg_prompts | 1.35 (Table 1) | - | - | - |" in text
    assert "runs/paper_goose.sh" not in text
    assert "differs:" not in text
    methods = {m: committing(timed(10), n) for m, n in {**rate, "pld": 3}.items()}
    run = stored(bench(methods))
    assert "Why `goose` differs: in two of our sets" in page({"smollm2_tau_greedy": run})
    assert "differs:" not in page({"tau_greedy": run}), "the cause is SmolLM2's"


def test_dynatree_is_shown_by_the_most_nodes_of_a_tree_and_for_long_answers() -> None:
    methods = {"ar": timed(1, 1, looping=1)}
    for most in BUDGETS:
        for name, taus in (("dynatree", 3.0), ("fixed-tree", 2.0)):
            rows = committing(timed(20, 20), taus + (most > 16))
            methods[f"{name}:budget={most}:drafter=eagle3"] = rows
    own = "smollm2_dynatree_budgets"
    text = page({own: stored(bench(methods), "paper_dynatree.sh budgets")})
    assert "| 16 | 3.00 | 2.00 |\n| 32 | 4.00 | 3.00 |" in text
    assert "50.0 % of 8-grams repeated.\n" in text
    for name in [*methods][1:]:
        methods[name] = committing(timed(20, 20), 2.5)
    text = page({own: stored(bench(methods), "paper_dynatree.sh budgets")})
    assert "repeated. Depth and breadth bound the trees of both before so many nodes do." in text
    long = {"ar": methods["ar"], "dynatree": committing(timed(20, 20), 4.5)}
    run = stored(bench(long), "paper_dynatree.sh longer_set")
    text = page({"smollm2_dynatree_512": run})
    assert "| 512 new tokens | τ of `dynatree` | repeated 8-grams |" in text
    assert "greedy, batch 1 | 4.50 | 50.0 % |" in text


def test_every_claim_is_of_a_run_that_a_script_makes() -> None:
    scripts = "".join(path.read_text() for path in (ROOT / "runs").glob("paper_*.sh"))
    for claim in (each for claims in CLAIMS.values() for each in claims):
        assert claim.run.removesuffix("_pg") in scripts, claim.run


def test_gains_of_traversal_verification_are_means_of_temperatures() -> None:
    def seeds(gain: float) -> list[dict[str, float]]:
        return [{"rejection": 2.0, "traversal": 2 * (1 + gain), "gain": gain, "steps": 9}]

    methods = {"traversal": {"0.2": seeds(0.02), "1.0": seeds(0.06)}, "mixed": {"0.2": [{}]}}
    run = stored({"provenance": origin(), "methods": methods}, "paper_traversal.sh law")
    text = page({"acceptance_law": run})
    assert "| +2.2 % to +5.7 % (Tables 2 to 4) | +4.0 % (T = 0.2: +2.0 %, T = 1.0: +6.0 %)" in text
    assert "| as in the paper | [acceptance_law]" in text
    assert "gain by task" not in text
    for heat, gain in (("0.2", 0.03), ("1.0", 0.05)):
        run["methods"]["traversal"][heat][0]["by_task"] = {"qa": {"gain": gain}, "math": {}}
    assert "| gain by task | `traversal` |\n| --- | --- |\n| qa | +4.0 % |\n\n" in page(
        {"acceptance_law": run}
    )
    run["methods"].pop("mixed")
    assert "| `traversal` | traversal | 2.04 | 2.12 |" in run_page("acceptance_law", run)


def level(full: float) -> dict[str, Any]:
    """Costs of a policy's levels, as ``level_cost.py`` prints them."""
    parts = {"all": full, "policy": full / 2}
    return {"full_level": parts, "nodes": 59, "levels": 4, "level": 1.5, "tree": 6.0}


COSTS: dict[str, dict[str, Any]] = {
    "engine_overhead": {
        "cost_ms_by_nodes": {"off": {"1": 5.0, "8": 6.0}, "on": {"1": 4.0, "8": 5.0}},
        "steps": {
            "ar": {"drafted": 0, "step_ms": 5, "model_ms": 4, "outside_ms": 1, "outside_share": 0.2}
        },
        "host_work": {
            "goose": {
                "8": {
                    **dict.fromkeys(("draft", "submit", "rows", "verify", "commit"), 0.25),
                    **{"learn": 0.5, "rest": 0.1, "hand-over": 1.5, "drafted": 128, "sum": 1.85},
                }
            }
        },
        "reading": {"weights_mb": 200.0, "gb_per_second": 100.0},
        "index_memory": {"tokens": 1000, "context_mb": 3.2, "adjacency_mb": 1.5},
    },
    "level_cost": {
        "milliseconds_by_threads": {
            "2": {
                "0.7": {"talon": level(0.5), "eagle3": level(0.6)},
                "1.2": {"talon": level(0.3), "eagle3": level(0.6)},
                "5.0": {"talon": {**level(0.0), "full_level": {}}, "eagle3": level(0.6)},
            }
        }
    },
    "verifier_cost": {
        "verifying_ms": {
            "31": {"target_forward_ms": 9.0, "4096": {"rejection": 0.5, "traversal": 0.75}}
        }
    },
    "peak_memory": {"peak_memory": {"ar": {"peak_mb": 512.4, "tokens": 9}}},
    "first_token": {
        "first_token": {"ar": {"milliseconds": {"512": 210.4, "4096": 2100.0}, "same": 10}}
    },
    "oracles": {
        "oracles": {
            "modelled_greedy": {
                "16": {
                    part: {"speedup": 1.5, "mean_acceptance_length": 2, "drafted_per_step": 4}
                    for part in ("auto", "acceptance")
                }
            }
        }
    },
    "rivals": {
        "rivals": {
            "modelled_greedy": {
                "own costs": {
                    "ngram-trie": {
                        "auto": {
                            "1": {
                                "mean": 1.25,
                                "sets": {
                                    "mbpp": {"value": 1.3, "low": 1.1, "high": 1.5},
                                    "gsm8k": {"value": 1.2, "low": 0.95, "high": 1.4},
                                },
                            },
                            "16": {"mean": 1.5, "sets": {"mbpp": {"value": 1.5, "low": None}}},
                        }
                    }
                }
            }
        },
        "queues": {"modelled_greedy": {"h100, 8b": {"ngram-trie": {"auto": {"4": 1.125}}}}},
    },
    **{
        study: {
            study: {
                "modelled_greedy": {
                    "temperature": 0.0,
                    "methods": {
                        "all": {
                            "method": "auto",
                            "tokens_a_step": {"8": {"mbpp": 2.0, "gsm8k": 3.0}, "16": {}},
                            "speed": {
                                "own costs": {
                                    "1": {
                                        "mean": 0.9,
                                        "sets": {"mbpp": {"value": 0.9, "low": 0.8, "high": 1.0}},
                                    }
                                }
                            },
                        }
                    },
                }
            }
        }
        for study in ("left_out", "shapes")
    },
    "memory_recipes": {
        "memory_recipes": {
            "epochs": {
                "temperature": 1.0,
                "passes": {
                    "epoch2": {
                        "prompts": 4,
                        "repeated_8grams": 0.1,
                        "known_8grams": 0.25,
                        "with": {"tokens_per_forward": 1.8, "accepted_from_memory": 0.3},
                        "with_over_without": {
                            "tokens_per_forward": {"value": 1.2, "low": 1.1, "high": 1.3},
                            "tokens_per_second": {"value": 1.1, "low": None, "high": None},
                        },
                        "over_first_pass": {"with": 1.5, "without": 1.0},
                    }
                },
            }
        }
    },
    "modelled": {
        "modelled": {
            "h100": {
                "1b": {
                    "ar": {"1": {"speedup": 1, "mean_acceptance_length": 1, "drafted_per_step": 0}}
                }
            }
        }
    },
}


def test_costs_have_tables() -> None:
    answered = {"prompts": 16, "repeated_8grams": 0.25}
    settings = {"vocabulary": 150_000, "answers": {"modelled_greedy": answered}}
    runs = {
        name: stored({"provenance": origin(settings=settings), **found}, "costs.sh step")
        for name, found in COSTS.items()
    }
    text = page(runs)
    assert "| packing on, ms | 4.00 | 5.00 |\n| relative to 1 node | 1.00 | 1.25 |" in text
    assert (
        "reads 100.0 GB/s. A forward of one node reads 200 MB of weights at 50.0 GB/s: 50.0 %"
        in text
    )
    assert "| `ar` | 0 | 5.00 | 4.00 | 1.00 | 20.0 % |" in text
    assert "after 1,000 tokens: context 3 MB, adjacency 2 MB." in text
    assert "| `goose` | 8 | 128.00 | 1.85 | 0.25 |" in text
    assert "| 2 | 0.7 | 0.600 | 0.500 | 1.20 | as in the paper |" in text
    assert "| 2 | 5.0 | 0.600 | - | - | - |" in text, "no level had ten nodes"
    assert "| 2 | 1.2 | 0.600 | 0.300 | 2.00 | - |" in text, "the figure has no such exponent"
    assert "`embedded`, -, `c0ffee0`:\n\n| target forward" in text
    runs["smollm2_first_token_float32"] = {
        **runs["first_token"],
        "provenance": origin(model={"name": "smollm2", "dtype": "float32"}),
    }
    assert "`smollm2` in float32, -, `c0ffee0`:\n\n| first token after" in page(runs)
    own = {name: run_page(name, run) for name, run in runs.items()}
    assert "| 2 | 0.7 | `talon` | 59.00 | 4.00 | 1.50 | 6.00 |" in own["level_cost"]
    assert "| 31 | 4096 | 0.50 | 0.75 | 9.00 |" in own["verifier_cost"]
    assert "| `ar` | 512 |" in own["peak_memory"]
    assert "| `ar` | 210 | 2100 |" in own["first_token"]
    first = runs["first_token"]
    ours = first["first_token"]["ar"]
    both = {**first, "first_token": {"ar": ours, "llamacpp": ours}}
    shown = run_page("first_token", both)
    assert "| `ar` |" in shown
    assert "| `llamacpp` |" not in shown
    assert "The times of llama.cpp are left out: this run opened its file" in shown
    once = origin(settings={"files_opened": "before"})
    shown = run_page("first_token", {**both, "provenance": once})
    assert "| `llamacpp` | 210 | 2100 |" in shown
    assert "left out" not in shown
    found = "| greedy | 16 | 1.50 (τ 2.00, 4.00 nodes) | 1.50 (τ 2.00, 4.00 nodes) |"
    assert found in own["oracles"]
    assert found in page({"smollm2_oracles": runs["oracles"]})
    found = "| greedy | own costs | `ngram-trie` | `auto` | 1.25 (gsm8k 1.20) | 1.50 (mbpp 1.50) |"
    queue = "| greedy | h100, 8b | `ngram-trie` | `auto` | 1.12 |"
    for shown in (own["rivals"], page({"smollm2_rivals": runs["rivals"]})):
        assert found in shown
        assert queue in shown
    for replay in ("oracles", "rivals", "left_out", "shapes"):
        shown = "Answers: greedy: 16 prompts, **25.0 %** of their 8-grams repeated."
        assert shown in own[replay]
    found = "| greedy | all | `auto` | 2.50 | 0.90 (mbpp 0.90) |"
    for study in ("left_out", "shapes"):
        assert found in own[study]
        assert found in page({f"smollm2_{study}": runs[study]})
    found = "| epochs | epoch2 | 1.80 | 1.20 (1.10-1.30) | 1.10 | 1.50 | 30.0 % | 25.0 % | 10.0 % |"
    assert found in own["memory_recipes"]
    assert found in page({"smollm2_memory_epochs": runs["memory_recipes"]})
    # Load on servers has tests of its own.
    known = {member for run in COSTS.values() for member in run} | serving.TABLES.keys()
    assert known >= TABLES.keys()


def test_what_was_not_measured_is_named_with_its_script() -> None:
    text = page({})
    sections = (*SECTIONS, LOSSLESS, RECURRENT, COST_SECTION)
    assert text.count("Not measured at a commit; to measure it: `runs/") == len(sections)
    for section in sections:
        for script in section.script.replace("`", "").split(" and runs/"):
            assert (ROOT / "runs" / script.split()[0]).exists(), script


def test_smollm2_leads_and_the_embedded_model_has_the_appendix() -> None:
    sets = ("humaneval", "mbpp", "gsm8k", "mt_bench", "spec_bench", "edit")

    def rows(speed: float) -> list[RunRow]:
        return [row for n, each in enumerate(sets) for row in timed(speed, set=each, first=n)]

    looping = [*rows(10)[:-1], *timed(10, set="edit", first=5, looping=1)]
    methods = {"ar": looping, "auto": rows(20), "goose": rows(15), "hf": rows(5)}
    named = origin(model={"name": "smollm2", "parameters": 134_500_000, "dtype": "float32"})
    lead = stored(bench(methods, provenance=named), "smollm2/grid.sh greedy")
    own = stored(bench(SPEEDS))
    text = page({"every_speed_greedy_1": own, "smollm2_greedy": lead})
    order = ["How much faster?", "smollm2 (134 M", "Set by set", "Appendix", "embedded (6.2 M"]
    places = [text.index(each, text.index("## How much faster?")) for each in order]
    assert places == sorted(places)
    assert "| humaneval | 1 | 2.00 | `goose` 1.50 | `hf` 0.50 | 1.33 | 0.0 % |" in text
    assert "| edit | 1 | 2.00 | `goose` 1.50 | `hf` 0.50 | 1.33 | **100.0 %** |" in text
    assert "| mean of sets | 6 | 2.00 | 1.50 | 0.50 | 1.33 | 16.7 % |" in text
    assert "to measure it: `MODEL=smollm2 runs/paper_goose.sh`." in text
    assert "### How much faster?" in text
    assert "No run on SmolLM2" not in text
    assert "No run on SmolLM2-135M-Instruct is stored yet" in page({"every_speed_greedy_1": own})
    assert "| repeated 8-grams of `ar` | 0.0 % |" in run_page("smollm2_greedy", lead)


def test_a_set_on_which_auto_is_behind_is_named_with_the_method_ahead() -> None:
    sets = ("humaneval", "mbpp", "gsm8k", "mt_bench", "spec_bench", "edit")
    speeds = {"ar": 6 * [10], "auto": [20, 20, 15, 20, 20, 20], "goose": 6 * [16], "hf": 6 * [5]}
    speeds["auto:shipped=off"] = 6 * [12]
    methods = {
        name: [
            each
            for n, (of_set, speed) in enumerate(zip(sets, found, strict=True))
            for each in timed(speed, set=of_set, first=n)
        ]
        for name, found in speeds.items()
    }
    text = page({"smollm2_greedy": stored(bench(methods), "smollm2/grid.sh greedy")})
    assert "is behind the fastest other method of a set on gsm8k 0.94x `goose`" in text
    assert "| gsm8k | 1 | 1.50 | `goose` 1.60 | `hf` 0.50 | 0.94 |" in text
    assert "|  | `auto` | `auto:shipped=off` |\n| --- | --- | --- |\n" in text
    assert "| mean of sets | 1.92 | 1.20 |" in text
    assert "`auto:shipped=off` is 0.75x `goose`" in text
    assert "`auto:shipped=off` is behind the fastest method with nothing prepared of a set" in text


def test_auto_without_what_is_shipped_is_compared_with_the_unprepared_alone() -> None:
    speeds = {"ar": 10, "auto": 20, "auto:shipped=off:neural=": 15, "goose": 16, "eagle3": 18}
    speeds |= {"goose:adjacency.table=table": 19}
    methods = {name: timed(*6 * [speed]) for name, speed in speeds.items()}
    found = list(shortfalls(stored(bench(methods))))
    assert found == [
        "`auto:shipped=off:neural=` is 0.94x `goose`",
        "`auto:shipped=off:neural=` is behind the fastest method with nothing prepared of a set on "
        "humaneval 0.94x `goose`",
    ]


def test_the_readme_shows_the_speeds_of_all_sets() -> None:
    sets = ("humaneval", "mbpp", "gsm8k", "mt_bench", "spec_bench", "edit")
    speeds = {"ar": 10, "auto": 20, "auto:shipped=off": 30, "hf": 5, "goose": 40}
    speeds |= {"hf-lookup": 6, "hf-lookup:tokens=3": 8}
    methods = {
        name: [each for n, of_set in enumerate(sets) for each in timed(v, set=of_set, first=n)]
        for name, v in speeds.items()
    }
    machine = {"hardware": {"cores_usable": 2}}
    run = stored(bench(methods, provenance=origin() | machine), "smollm2/grid.sh greedy")
    text = with_speeds(f"a\n{BEGIN}old{END}b\n", {"smollm2_greedy": run, "greedy": run})
    assert text.startswith(f"a\n{BEGIN}\nHow many times as fast as plain decoding")
    assert text.endswith(f"\n{END}b\n")
    assert "batch 1, 2 CPU cores,\n2026-01-02. A figure is the mean over 6 sets" in text
    assert "Without these parts it is 0.75 (greedy) times as fast as `goose`." in text
    row = "| greedy | 2.00 | 3.00 | 4.00 | 1.00 | 0.80 | 0.50 | 0.0 % | 2.00 | [c0ffee0]"
    assert f"{row}(runs/data/smollm2_greedy.md) |" in text
    assert "| repeated 8-grams | `auto` without loops | run |" in text
    unmeasured = with_speeds(text, {"greedy": run})
    assert unmeasured.startswith(f"a\n{BEGIN}\nSmolLM2-135M-Instruct is not measured yet")
    assert unmeasured.endswith(f"\n{END}b\n")
    for mark in (BEGIN, END):
        with pytest.raises(ValueError, match="has no two lines"):
            with_speeds(text.replace(mark, ""), {})


def test_tables_of_speeds_name_their_machines_and_commits() -> None:
    sets = ("humaneval", "mbpp", "gsm8k", "mt_bench", "spec_bench", "edit")
    methods = {
        name: [each for n, of_set in enumerate(sets) for each in timed(v, set=of_set, first=n)]
        for name, v in {"ar": 10, "auto": 20}.items()
    }
    run = stored(bench(methods, provenance=origin() | {"hardware": {"cpu": "Some CPU"}}))
    text = page({"smollm2_greedy": run})
    assert "only figures of one row are" in text
    assert "| 0.0 % | Some CPU, `c0ffee0` |\n" in text
    assert "(../runs/data/smollm2_greedy.md), Some CPU, `c0ffee0`:\n\n| set |" in text


def test_a_larger_model_with_the_same_answers_has_its_own_section() -> None:
    named = origin(model={"name": "smollm2-0.5b", "parameters": 481_000_000, "dtype": "float32"})
    large = stored(bench(SPEEDS, provenance=named), "smollm2/inflated.sh greedy")
    lead = stored(bench(SPEEDS))
    text = page({"smollm2_greedy": lead, "smollm2_inflated_greedy": large})
    assert text.count("[smollm2-0.5b (481 M, float32)") == 2  # speed-ups, and where it does not pay
    section = text.index("## At the cost of a larger model\n")
    first = text.index("[smollm2-0.5b (481 M, float32)")
    assert section < first < text.index("## At the cost of larger models (modelled)")


def test_a_model_with_recurrent_layers_has_its_own_section() -> None:
    named = origin(model={"name": "hybrid", "parameters": 7_100_000, "dtype": "float32"})
    run = stored(bench(SPEEDS, provenance=named), "hybrid.sh greedy")
    text = page({"smollm2_greedy": stored(bench(SPEEDS)), "hybrid_greedy": run})
    section = text[text.index("## On a model with recurrent layers\n") :].partition("\n## ")[0]
    assert section.count("[hybrid (7.1 M, float32)") == 2  # speed-ups, and where it does not pay
    assert "hybrid (" not in text[text.index("## Appendix") :]


def test_modelled_speeds_stand_apart() -> None:
    def at(speed: float) -> dict[str, dict[str, float]]:
        each = {"speedup": speed, "mean_acceptance_length": 2.5, "drafted_per_step": 12.4}
        return {"1": each, "64": {**each, "speedup": speed / 2}}

    methods = {"ar": at(1.0), "auto:layout=ranked": at(2.0), "goose": at(1.5), "pld": at(1.2)}
    found = {"h100": {"8b": methods}}
    facts = origin(settings={"temperature": 0.7, "prompts": 16, "repeated_8grams": 0.25})
    run = stored({"provenance": facts, "modelled": found}, "smollm2/modelled.sh sampled")
    text = page({"smollm2_modelled_sampled": run})
    assert "Temperature 0.7, 16 prompts, **25.0 %** of their 8-grams repeated:" in text
    assert "| GPU, temperature 0.7 | shape | batch 1 | batch 64 |" in text
    assert "| h100 | 8b | 2.00 (`goose` 1.50) | 1.00 (`goose` 0.75) |" in text
    own = run_page("smollm2_modelled_sampled", run)
    assert "| h100 | 8b | `goose` | 1.50 (τ 2.50, 12 nodes) | 0.75 (τ 2.50, 12 nodes) |" in own
    assert not run["times"]


def test_a_claim_is_measured_with_the_head_where_there_is_no_draft_model() -> None:
    books = {"ar": timed(10, set="pg_prompts")}
    books["dynatree:max_depth=10:drafter=eagle3"] = timed(20, set="pg_prompts")
    text = page({"smollm2_dynatree_long_pg": stored(bench(books))})
    assert "`ar` | pg_prompts | 1.70 (Table 1) | 2.00 |" in text
    assert "[smollm2_dynatree_long_pg](../runs/data/smollm2_dynatree_long_pg.md)" in text
