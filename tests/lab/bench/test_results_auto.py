"""`auto` against the best other method, worked out by hand."""

from dataclasses import replace
from pathlib import Path

from draftwood.lab.bench.rows import Row
from tests.lab.bench.kept_runs import needs_runs, save, text, timed

pytestmark = needs_runs

HEADLINE = "### `auto` against the best other method"


def test_each_set_has_its_own_best_other_method(tmp_path: Path) -> None:
    def both(first: tuple[float, ...], second: tuple[float, ...], looping: int = 0) -> list[Row]:
        return [*timed(*first, looping=looping), *timed(*second, set="mbpp", first=9)]

    methods = {
        "ar": both((10, 10, 10), (20,), looping=1),
        "hf": both((500, 500, 500), (500,)),
        "llamacpp:threads=1": both((900, 900, 900), (900,)),
        "goose": both((16, 16, 16), (24,)),
        "talon": both((12, 12, 12), (48,)),
        "auto": both((10, 20, 30), (32,), looping=1),
        "auto:drafter=model": both((5, 5, 5), (60,)),
    }
    save(tmp_path / "every_speed_greedy_1.json", methods)
    page = text(tmp_path)
    lines = [
        "| humaneval | 3 (1; 33%) | 10 | `goose` 16 | `auto` 20 | 1.25 | 1.25 | 2.00 | 1.10 "
        "| 1.00 |",
        "| mbpp | 1 (0; 0%) | 20 | `talon` 48 | `auto` 32 | 0.67 | - | 1.60 | 1.60 | 1.60 |",
        # To `goose`, the best foreseen on all: 10, 20 and 30 over 16 and 32 over 24.
        # To `ar` 1, 1.6, 2, 3: the 5th percentile is 3 * 0.05 of the way from first to second.
        "| all | 4 (1; 25%) | 10 | `goose` 16 | `auto` 25 | 1.56 | 1.29 | 1.80 | 1.09 | 1.00 |",
        "| all without looping | 3 (0; 0%) | 10 | `goose` 16 | `auto` 20 | 1.25 | 1.25 | 1.60 "
        "| 1.06 | 1.00 |",
        "| mean of the sets | - | - | - | - | 0.96 | 1.25 (0.62 to 1.88) | 1.80 | 1.09 | 1.00 |",
    ]
    assert "\n".join(lines) in page
    assert (
        "| mbpp | 1 (0; 0%) | 20 | `talon` 48 | `auto:drafter=model` 60 "
        "| 1.25 | - | 3.00 | 3.00 | 3.00 |"
    ) in page
    assert HEADLINE in page
    # Of 10/16, 20/16 and 30/16 each end is the median in 7 of 27 draws.
    lines = [
        "| every_speed_greedy_1 | `auto` | 2 | 0.96 | 1.25 (0.62 to 1.88) | 1.80 | 1.09 | 1.00 |",
        "| every_speed_greedy_1 | The best variant of each set | 2 | 1.25 | 1.25 (0.62 to 1.88) "
        "| 2.50 | 1.15 | 1.00 |",
    ]
    assert "\n".join(lines) in page
    # The mean of 5 over 16 and 60 over 48.
    assert "over the best other: `auto:drafter=model` 0.78." in page


def test_plain_decoding_may_be_the_best_other(tmp_path: Path) -> None:
    methods = {"ar": timed(10, 10), "goose": timed(8, 8), "auto": timed(9, 9)}
    save(tmp_path / "every_speed_inf025_sampled_4.json", methods)
    page = text(tmp_path)
    assert (
        "| humaneval | 2 (0; 0%) | 10 | `ar` 10 | `auto` 9 | 0.90 | 0.90 | 0.90 | 0.90 | 0.90 |"
        in page
    )
    assert "best variant of each set" not in page
    assert "without looping |" not in page


def test_prompts_decoded_together_are_one_ratio(tmp_path: Path) -> None:
    plain, fast = timed(10, 10), timed(20, 40)
    for rows in (plain, fast):
        rows[1] = replace(rows[1], group=0)
    save(tmp_path / "every_speed_greedy_16.json", {"ar": plain, "auto": fast})
    # Twenty tokens, in one second by plain decoding and in half a second: the longest stay.
    expected = (
        "| humaneval | 2 (0; 0%) | 20 | `ar` 20 | `auto` 40 | 2.00 | - | 2.00 | 2.00 | 2.00 |"
    )
    page = text(tmp_path)
    assert expected in page
    assert "| every_speed_greedy_16 | `auto` | 1 | 2.00 | - | 2.00 | 2.00 | 2.00 |" in page


def test_the_best_other_and_variant_are_also_chosen_in_advance(tmp_path: Path) -> None:
    methods = {
        "ar": timed(5, 5, 5),
        "goose": timed(10, 10, 10),
        # Afterwards the best other; on the other two prompts only where it is slow itself.
        "talon": timed(12, 12, 2),
        "auto": timed(15, 20, 10),
        # Afterwards the best variant; on the other two prompts only where it is slow itself.
        "auto:drafter=model": timed(16, 25, 4),
    }
    save(tmp_path / "every_speed_greedy_1.json", methods)
    page = text(tmp_path)
    # 15/10, 20/10 and 10/2; then 15/10, 20/10 and 4/2.
    first = (
        "| humaneval | 3 (0; 0%) | 5 | `talon` 12 | `auto` 15 | 1.25 | 2.00 | 3.00 | 2.10 | 2.00 |"
    )
    second = (
        "| humaneval | 3 (0; 0%) | 5 | `talon` 12 | `auto:drafter=model` 16 "
        "| 1.33 | 2.00 | 3.20 | 1.04 | 0.80 |"
    )
    assert first in page
    assert second in page
    name = "every_speed_greedy_1"
    expected = [
        f"| {name} | `auto` | 1 | 1.25 | 2.00 (1.50 to 5.00) | 3.00 | 2.10 | 2.00 |",
        f"| {name} | The best variant of each set | 1 | 1.33 | 2.00 (1.50 to 2.00) | 3.20 | 1.04 "
        "| 0.80 |",
    ]
    assert "\n".join(expected) in page


def test_runs_without_auto_have_no_such_table(tmp_path: Path) -> None:
    save(tmp_path / "speed_greedy.json", {"ar": timed(10), "goose": timed(8)})
    page = text(tmp_path)
    assert "best other" not in page
