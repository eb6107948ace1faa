"""What a speed-up should be, from acceptance and the cost of drafting and of verifying.

Source: TALON, Section 6.1 and Eq. 7, after Leviathan et al. (2023). Times are relative to one
target forward over one token. It refuses to know how any of these were measured.
"""


def speedup(tau: float, draft_cost: float, draft_efficiency: float) -> float:
    """Eq. 7: ``tau / (1 + c * delta)``; verifying a tree costs what one token costs.

    Args:
        tau: mean acceptance length, tokens per step.
        draft_cost: c, one draft forward over one target forward.
        draft_efficiency: delta, draft forwards per target forward.
    """
    return speedup_with_verification(tau, 1.0, draft_cost, draft_efficiency)


def speedup_with_verification(
    tau: float, verification: float, draft_cost: float, draft_efficiency: float
) -> float:
    """The same where a target forward over a tree costs ``verification`` = T(n) / T(1).

    ValueError for a cost or an efficiency below 0, or no verification at all.
    """
    if verification <= 0.0 or draft_cost < 0.0 or draft_efficiency < 0.0:
        raise ValueError(
            f"Costs are {verification} and {draft_cost} and draft efficiency is "
            f"{draft_efficiency}; give at least 0, and more than 0 for verification."
        )
    return tau / (verification + draft_cost * draft_efficiency)
