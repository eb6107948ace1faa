#!/usr/bin/env bash
# Sampled trees: token-level rejection against Traversal Verification on a chain, a binary tree and
# EAGLE's sparse tree (the paper's Tables 2 to 4), over depths (its Figure 3), and what tree and what
# verifier accept most at equal nodes and draft forwards. One JSON file a temperature and seed.
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=6] [SEEDS="1 2 3"] runs/traversal.sh [tables|depths|cost]...
set -euo pipefail
: "${PROMPTS:?directory with the prompt files}"
OUT=${OUT:-runs/out}; LIMIT=${LIMIT:-6}; SEEDS=${SEEDS:-1 2 3}; mkdir -p "$OUT"
bench() { draftwood bench --prompts "$PROMPTS/spec_bench.jsonl" --truncate 1024 --max-new-tokens 128 --limit "$LIMIT" "$@"; }

tables() {
    local chain=1x1x1x1x1 binary=2x2x2x2x2
    local methods=ar
    methods+=,rrsw:shape=$chain,block:shape=$chain,traversal:shape=$chain
    methods+=,rrsw:shape=$binary,specinfer:shape=$binary,traversal:shape=$binary
    methods+=,rrsw:shape=sparse,traversal:shape=sparse
    methods+=,fixed-tree:depth=5:breadth=2:threshold=0,mixed:shape=$binary,mixed:shape=$binary:deepest=last
    for t in 0.2 0.4 0.6 0.8 1.0; do for seed in $SEEDS; do
        bench --methods "$methods" --temperature "$t" --seed "$seed" --json "$OUT/traversal_t${t}_s${seed}.json"
    done; done
}
depths() {
    local methods=ar shape=1 d
    for d in 2 3 4 5 6 7 8; do
        shape+=x1; methods+=,rrsw:shape=$shape,traversal:shape=$shape
    done
    shape=2
    for d in 2 3 4 5; do
        shape+=x2; methods+=,rrsw:shape=$shape,traversal:shape=$shape
    done
    for seed in $SEEDS; do
        bench --methods "$methods" --temperature 1 --seed "$seed" --json "$OUT/depths_t1.0_s${seed}.json"
    done
}
cost() { python "$(dirname "$0")/verifier_cost.py" > "$OUT/verifier_cost.json"; }
for part in "${@:-tables depths cost}"; do for each in $part; do "$each"; done; done
