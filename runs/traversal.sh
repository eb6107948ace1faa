#!/usr/bin/env bash
# Sampled trees: token-level rejection against Traversal Verification on a chain, a binary tree and
# EAGLE's sparse tree (the paper's Tables 2 to 4), over depths (its Figure 3), and what tree and what
# verifier accept most at equal nodes and draft forwards. One JSON file a temperature and seed.
# Counted tokens differ by more between texts than between verifiers; the exact expectations of
# acceptance_law.py, over the same trees, tell these apart.
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=6] [SEEDS="1 2 3"] runs/traversal.sh [law|depths|tables|cost]...
set -euo pipefail
: "${PROMPTS:?directory with the prompt files}"
OUT=${OUT:-runs/out}; LIMIT=${LIMIT:-6}; SEEDS=${SEEDS:-1 2 3}; mkdir -p "$OUT"
bench() { draftwood bench --prompts "$PROMPTS/spec_bench.jsonl" --truncate 1024 --max-new-tokens 128 --limit "$LIMIT" "$@"; }
expect() { python "$(dirname "$0")/acceptance_law.py" --prompts "$PROMPTS/spec_bench.jsonl" --limit "$LIMIT" --seeds "${SEEDS// /,}" "$@"; }

tables() {
    local chain=1x1x1x1x1 binary=2x2x2x2x2
    local methods=ar
    methods+=,rrsw:shape=$chain,block:shape=$chain,traversal:shape=$chain
    methods+=,rrsw:shape=$binary,specinfer:shape=$binary,traversal:shape=$binary
    methods+=,rrsw:shape=sparse,traversal:shape=sparse
    methods+=,fixed-tree:depth=5:breadth=2:threshold=0,mixed:shape=$binary
    for t in 0.2 0.4 0.6 0.8 1.0; do for seed in $SEEDS; do
        bench --methods "$methods" --temperature "$t" --seed "$seed" --json "$OUT/traversal_t${t}_s${seed}.json"
    done; done
}
law() {
    local shape methods=fixed-tree:depth=5:breadth=2:threshold=0,mixed:shape=2x2x2x2x2,specinfer:shape=2x2x2x2x2
    for shape in 1x1x1x1x1 2x2x2x2x2 sparse; do methods+=,traversal:shape=$shape; done
    expect --methods "$methods" > "$OUT/acceptance_law.json"
    # About 25 nodes, as the sparse tree has.
    methods=traversal:shape=4x2x1x1x1,traversal:shape=2x2x2x1x1:budget=25
    for shape in '' :deepest=last; do methods+=,mixed:shape=sparse$shape; done
    for shape in talon opt-tree traversal-talon traversal-talon:last=top traversal-dynatree; do
        methods+=,${shape/:/:budget=25:}; [[ $shape == *:* ]] || methods+=:budget=25
    done
    expect --methods "$methods" --temperatures 0.4,0.7,1.0 > "$OUT/acceptance_law_rivals.json"
}
depths() {
    local methods='' shape=1 d
    for d in 2 3 4 5 6 7 8; do shape+=x1; methods+=traversal:shape=$shape,; done
    shape=2
    for d in 2 3 4 5; do shape+=x2; methods+=traversal:shape=$shape,; done
    expect --methods "${methods%,}" --temperatures 1.0 > "$OUT/acceptance_law_depths.json"
}
cost() { python "$(dirname "$0")/verifier_cost.py" > "$OUT/verifier_cost.json"; }
for part in "${@:-law depths tables cost}"; do for each in $part; do "$each"; done; done
