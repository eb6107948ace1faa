"""The recipes that come with the package: data only; `draftwood.recipes` says what it means."""

from draftwood.recipes import Recipe

_GOOSE = "GOOSE (spine trees of context match and adjacency)"
BUILT_IN = (
    Recipe("ar", "plain decoding through the same engine", "-", "plain"),
    Recipe(
        "pld",
        "a chain copied from the context",
        "Prompt Lookup Decoding, as GOOSE defines it",
        "chain",
        {"context": "context"},
    ),
    Recipe(
        "tr",
        "a static tree over the last token's successors",
        "Token Recycling",
        "recycling",
        {"adjacency": "adjacency"},
        presets={
            "adjacency.bigram": False,
            "adjacency.width": 8,
            "adjacency.min_score": 0.0,  # Token Recycling prunes nothing
        },
    ),
    Recipe(
        "iso3",
        "a uniform 3-ary tree over GOOSE's two sources",
        f"{_GOOSE}, baseline Iso(3)",
        "isotropic",
        {"context": "context", "adjacency": "adjacency"},
        presets={"k": 3},
    ),
    Recipe(
        "iso5",
        "a uniform 5-ary tree over GOOSE's two sources",
        f"{_GOOSE}, baseline Iso(5)",
        "isotropic",
        {"context": "context", "adjacency": "adjacency"},
        presets={"k": 5},
    ),
    Recipe(
        "sd",
        "a chain of a draft model's likeliest tokens",
        "Speculative decoding (Leviathan et al. 2023)",
        "fixed",
        {"draft": "model"},
        presets={"budget": 5, "breadth": 1, "depth": None, "threshold": 0.0},
    ),
    Recipe(
        "goose",
        "a spine copied from the context, with branches from the adjacency table",
        _GOOSE,
        "spine",
        {"context": "context", "adjacency": "adjacency"},
    ),
)
