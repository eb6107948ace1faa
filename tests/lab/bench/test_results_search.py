"""What runs/auto_search printed, as tables."""

from pathlib import Path

from tests.lab.bench.kept_runs import ORIGIN, keep, needs_runs, text

pytestmark = needs_runs


def figures(tau: float) -> dict[str, float]:
    return {"tau": tau, "nodes": 3.25, "drafts": 0.0}


def row(code: float, mean: float, over: float, share: float | None) -> dict[str, object]:
    rates = {"humaneval": code, "all": 99.6}
    more = {"over_auto": over, "share_of_gap": share, "tau": 2.5, "nodes": 7.25}
    return {"tokens_per_second": rates, "mean": mean, **more}


def sums(error: float | None) -> dict[str, object]:
    return {"offered": 9, "foretold": 4.5, "taken": 4, "error": error}


def test_each_part_has_its_table(tmp_path: Path) -> None:
    both = {"auto": figures(2.0), "goose": figures(1.6), "gain": 0.25}
    found = {
        "provenance": ORIGIN,
        "nodes_drafted": {
            "auto": "auto",
            "others": ["goose"],
            "sizes": {"4": {"humaneval": both, "all": {**both, "gain": -0.0125}}},
            "below": [],
        },
        "faults_free": {
            "rows": {
                "auto": row(100.0, 120.0, 0.0, 0.0),
                "rate told": row(90.4, 108.0, -0.1, None),
            },
            "best": {"humaneval": "goose"},
        },
        "calibration_free": {
            "sets": {
                "humaneval": {
                    "warm": {"steps": 0, "sources": {}, "paths_by_rank": {}},
                    "cold": {
                        "steps": 5,
                        "sources": {"all": sums(0.125), "copied": sums(None)},
                        "paths_by_rank": {"1": sums(-0.5)},
                    },
                }
            }
        },
    }
    keep(tmp_path / "auto_search_x.json", found, "costs.sh search")
    page = text(tmp_path)
    assert "### Tokens a step with equal nodes, with a draft model" in page
    assert "| 4 | `goose` | 1.60 | 1.60 | 3.2 |" in page
    assert "| 4 | `auto` over the best other | +25.0 % | -1.2 % | - |" in page
    assert "### With one part after another replaced, without a draft model" in page
    assert "| auto | 100 | 100 | 120 | +0.0 % | +0.0 % | 2.50 | 7.2 |" in page
    assert "| rate told | 90 | 100 | 108 | -10.0 % | - | 2.50 | 7.2 |" in page
    assert "Best other method of each set: humaneval `goose`." in page
    assert "| cold | all | +12.5 % |\n| cold | copied | - |\n| cold | path 1 | -50.0 % |" in page
    assert "| warm |" not in page
    assert "`auto_search_x`: commit `c0ffee0`, 2026-01-02, `runs/costs.sh search`," in page
