"""The recipes that come with the package: data only; `draftwood.recipes` says what it means."""

from draftwood.recipes import Recipe

_GOOSE = "GOOSE (spine trees of context match and adjacency)"
_DYNATREE = "DynaTree (adaptive draft-model trees)"
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
    Recipe(
        "fixed-tree",
        "a draft model's tree of fixed breadth and depth",
        f"{_DYNATREE}, its fixed tree (D=8, B=3, tau=0.1)",
        "fixed",
        {"draft": "model"},
    ),
    Recipe(
        "dynatree",
        "a draft model's tree, its breadth by confidence, its depth by path probability",
        _DYNATREE,
        "dynatree",
        {"draft": "model", "context": "context"},
    ),
    Recipe(
        "talon",
        "a draft model's tree that spends its budget where the model is confident",
        "TALON (confidence-gated trees under a budget)",
        "talon",
        {"draft": "model", "context": "context"},
    ),
    Recipe(
        "opt-tree",
        "a draft model's likeliest nodes, as deep as another level pays",
        "OPT-Tree (Wang et al. 2025)",
        "opt_tree",
        {"draft": "model"},
    ),
    Recipe(
        "sequoia",
        "a static tree searched for a draft model's acceptance by rank",
        "Sequoia (Chen et al. 2025)",
        "sequoia",
        {"draft": "model"},
    ),
    Recipe(
        "eagle3",
        "an EAGLE-3 head's tree of fixed width and depth, cut to the likeliest nodes",
        "EAGLE-3 (Li et al. 2025), with EAGLE-2's tree",
        "eagle2",
        {"draft": "eagle3"},
    ),
    Recipe(
        "goose-eagle3",
        "GOOSE's spine, with branches from an EAGLE-3 head",
        f"{_GOOSE}, its future work",
        "spine",
        {"context": "context", "draft": "eagle3"},
        presets={"branches": "draft"},
    ),
)
