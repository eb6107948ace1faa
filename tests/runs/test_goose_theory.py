"""Tables of GOOSE's theory on the results page, from runs made by hand."""

from statistics import correlation, median

from draftwood.lab.theory.dominance import isotropic_yield, printed_spine_yield
from draftwood.lab.theory.yields import AcceptanceRates
from runs.results_page.page import page
from tests.runs.stored_runs import bench, committing, stored, timed


def test_rates_stand_beside_the_bound_at_them() -> None:
    rates = {"humaneval": (0.5, 0.25), "mbpp": (0.4, 0.1), "edit": (0.8, 0.08)}
    rows = [
        row for n, each in enumerate(rates) for row in committing(timed(10, set=each, first=n), 3)
    ]
    run = stored(bench({"ar": timed(10), "goose": rows}))
    by_set = run["methods"]["goose"]["by_set"]
    for each, (p_s, p_t) in rates.items():
        by_set[each]["acceptance_by_source"] = {
            "context": {"rate": {"value": p_s}},
            "adjacency": {"rate": {"value": p_t}},
        }
    text = page({"smollm2_tau_greedy": run})
    ratios, dominance = [], []
    for each, (p_s, p_t) in rates.items():
        bound = printed_spine_yield(59, 20, AcceptanceRates(p_s, p_t), 6)
        isotropic = isotropic_yield(59, 3, p_t)
        shown = f"{p_s / p_t:.2f} | {bound:.2f} | {isotropic:.2f} | {bound / isotropic:.2f}"
        row = f"| {each} | {p_s:.3f} | {p_t:.3f} | {shown} | 3.00 | {bound / 3:.2f} | 0.0 % |"
        assert row in text
        ratios.append(p_s / p_t)
        dominance.append(bound / isotropic)
    middle, found = median(dominance), correlation(ratios, dominance)
    assert f"Here the median ratio is {middle:.2f}, the correlation {found:.2f}." in text


def test_one_set_has_no_correlation_and_sets_without_rates_no_row() -> None:
    run = stored(bench({"ar": timed(10), "goose": committing(timed(10), 3)}))
    by_set = run["methods"]["goose"]["by_set"]["humaneval"]
    by_set["acceptance_by_source"] = {
        "context": {"rate": {"value": 0.5}},
        "adjacency": {"rate": {"value": 0.25}},
    }
    assert "the correlation -." in page({"smollm2_tau_greedy": run})
    by_set["acceptance_by_source"]["context"] = {"rate": {"value": 0.0}}
    assert "| humaneval | 0.000 | 0.250 | 0.00 |" in page({"smollm2_tau_greedy": run})
    by_set["acceptance_by_source"]["adjacency"] = {"rate": {"value": 0.0}}
    assert "| humaneval | 0.000 | 0.000 | 1.00 |" in page({"smollm2_tau_greedy": run})
    by_set["acceptance_by_source"] = {}
    assert "Eq. 1" not in page({"smollm2_tau_greedy": run})


def test_ideas_one_after_the_other() -> None:
    taus = {
        "tr:budget=59": 2.0,
        "goose:adjacency.bigram=off:bypass=off": 2.5,
        "goose:bypass=off": 2.25,
        "goose": 3.0,
    }
    methods = {name: committing(timed(10), tau) for name, tau in taus.items()}
    run = stored(bench({"ar": timed(10), **methods}))
    text = page({"smollm2_tau_ablations": run})
    assert "| adjacency alone (`tr:budget=59`) | 2.81 |  | 2.00 |  |" in text
    spine = "| and a spine (`goose:adjacency.bigram=off:bypass=off`) |"
    assert f"{spine} 3.20 | +13.9 % | 2.50 | +25.0 % |" in text
    assert (
        "| and pairs of tokens as keys (`goose:bypass=off`) | 3.37 | +5.3 % | 2.25 | -10.0 % |"
        in text
    )
    del methods["goose:bypass=off"]
    text = page({"smollm2_tau_ablations": stored(bench({"ar": timed(10), **methods}))})
    assert "adjacency alone" not in text
