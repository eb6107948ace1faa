"""Figures as the papers print them; every ratio of them is computed where it is shown."""

from dataclasses import dataclass

from results_page.against import Printed

WIKITEXT2, PG19 = "wikitext2_test", "pg_prompts"


@dataclass(frozen=True)
class Claim:
    """Two methods' mean tokens a second over the prompts of one set, as a paper has them.

    Attributes:
        source: where they are printed.
        set: the prompts' set.
        method: the method's name in a run of its protocol.
        rival: the other's.
        fast: the method's tokens a second.
        slow: the rival's.
    """

    source: str
    set: str
    method: str
    rival: str
    fast: float
    slow: float

    @property
    def printed(self) -> Printed:
        """The ratio."""
        return Printed(self.fast / self.slow, self.fast / self.slow, self.source)


DYNATREE = (
    Claim("Table 1", WIKITEXT2, "dynatree", "ar", 219.5, 133.4),
    Claim("Table 1", WIKITEXT2, "dynatree", "sd:budget=8", 219.5, 196.1),
    Claim("Table 1", WIKITEXT2, "dynatree", "fixed-tree", 219.5, 200.7),
    Claim("Table 4", WIKITEXT2, "dynatree:history=off", "fixed-tree:depth=6:breadth=2", 213.2, 188),
    Claim("Table 4", WIKITEXT2, "dynatree", "fixed-tree:depth=6:breadth=2", 218.5, 188),
    Claim("Table 1", PG19, "dynatree:max_depth=10", "ar", 194.9, 114.8),
    Claim("Table 1", PG19, "dynatree:max_depth=10", "sd:budget=5", 194.9, 144.9),
    Claim("Table 1", PG19, "dynatree:max_depth=10", "fixed-tree", 194.9, 185.5),
)
"""At 1,500 new tokens."""

EAGLE3_GREEDY = (
    *(3.78, 3.87, 4.77, 4.05, 3.03, 3.43),
    *(3.23, 4.24, 3.85, 3.33, 2.86, 2.89),
    *(3.92, 3.63, 4.05, 3.67, 3.01, 3.06),
    *(2.08, 2.37, 2.35, 2.20, 2.09, 1.95),
    *(1.83, 2.22, 1.96, 1.90, 1.78, 1.57),
)
"""Speed-ups of TALON's Table 1 (temperature 0): a line for each of five models, of six sets."""
TALON_GREEDY = (
    *(3.94, 3.99, 5.16, 4.27, 3.26, 3.58),
    *(3.46, 4.43, 3.96, 3.56, 3.12, 3.14),
    *(4.04, 3.81, 4.20, 3.85, 3.27, 3.30),
    *(2.44, 2.67, 2.69, 2.57, 2.46, 2.30),
    *(2.05, 2.38, 2.15, 2.10, 1.99, 1.72),
)
EAGLE3_SAMPLED = (
    *(3.15, 3.29, 3.78, 3.21, 2.64, 2.96),
    *(2.49, 3.58, 3.04, 2.55, 2.25, 2.39),
    *(2.85, 2.51, 3.46, 2.20, 1.72, 2.42),
    *(1.95, 2.24, 2.20, 2.02, 1.87, 1.85),
    *(1.67, 2.10, 1.89, 1.75, 1.61, 1.51),
)
"""The same of its Table 3 (temperature 1)."""
TALON_SAMPLED = (
    *(3.28, 3.35, 3.97, 3.38, 2.82, 2.96),
    *(2.75, 3.70, 3.25, 2.81, 2.54, 2.63),
    *(3.15, 2.84, 3.56, 2.58, 2.08, 2.62),
    *(2.25, 2.50, 2.51, 2.32, 2.17, 2.11),
    *(1.84, 2.27, 2.07, 1.92, 1.77, 1.64),
)
TALON = {
    "Table 1": (TALON_GREEDY, EAGLE3_GREEDY),
    "Table 3": (TALON_SAMPLED, EAGLE3_SAMPLED),
}
TALON_TAU = {
    "Table 1": (
        (
            *(6.36, 6.80, 9.48, 7.29, 5.03, 7.20),
            *(5.18, 7.46, 6.28, 5.45, 4.66, 4.75),
            *(6.51, 6.24, 7.28, 6.22, 5.09, 5.28),
            *(3.39, 3.85, 3.78, 3.60, 3.41, 3.20),
            *(2.72, 3.30, 2.96, 2.94, 2.64, 2.54),
        ),
        (
            *(6.61, 6.74, 8.31, 7.12, 5.24, 6.93),
            *(5.64, 7.40, 6.70, 5.82, 5.02, 5.03),
            *(6.93, 6.42, 7.08, 6.38, 5.36, 5.46),
            *(3.45, 3.92, 3.89, 3.64, 3.46, 3.27),
            *(2.75, 3.36, 2.98, 2.98, 2.66, 2.57),
        ),
    ),
    "Table 3": (
        (
            *(5.43, 5.82, 7.25, 5.88, 4.63, 5.95),
            *(4.29, 6.44, 5.30, 4.44, 3.91, 4.17),
            *(5.21, 4.74, 6.40, 4.13, 3.20, 4.33),
            *(3.28, 3.74, 3.70, 3.41, 3.15, 3.11),
            *(2.53, 3.17, 2.91, 2.71, 2.41, 2.43),
        ),
        (
            *(5.61, 5.95, 6.77, 5.79, 4.72, 6.01),
            *(4.48, 6.43, 5.47, 4.56, 4.04, 4.32),
            *(5.19, 4.59, 6.24, 3.96, 3.12, 4.44),
            *(3.32, 3.81, 3.77, 3.46, 3.17, 3.17),
            *(2.55, 3.22, 2.95, 2.74, 2.44, 2.46),
        ),
    ),
}
"""Mean accepted tokens of the same tables, TALON's, then EAGLE-3's."""
TALON_BUDGET = 59
"""Drafted nodes of the paper's N = 60, which counts the root."""
