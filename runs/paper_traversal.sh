#!/usr/bin/env bash
# Traversal Verification: sampled trees and how they are verified.
#   law     exact expected acceptance of every drafted tree, by verifier: on a chain, a binary tree and
#           EAGLE's sparse tree (the paper's Tables 2 to 4), and of its rivals at about 25 nodes
#   depths  the same over depths (its Figure 3)
#   tables  the same trees by counted tokens; one file a temperature and seed. These differ by more
#           between texts than between verifiers, which is what law is for
#   cost    of verifying
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=6] [SEEDS="1 2 3"] runs/paper_traversal.sh [PART]...
# MODEL, DRAFT, HEAD, CHAT and NAME are for another model than the embedded one (parts.sh); without a
# DRAFT all trees are the head's.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
SEEDS=${SEEDS:-1 2 3}
another_model draft
families=$(sets spec_bench)
chain=1x1x1x1x1 binary=2x2x2x2x2

expect() { # NAME FLAG...
    local name=$1; shift
    if [[ -n ${TINY:-} ]]; then set -- "$@" --limit 1 --max-new-tokens 8 --seeds 1 --temperatures 1.0; fi
    save "$name" "$python" "$(dirname "$0")/acceptance_law.py" --prompts "$families" --limit "${LIMIT:-6}" --seeds "${SEEDS// /,}" \
        "${target[@]}" "$@"
}
law() {
    local shape methods=fixed-tree:depth=5:breadth=2:threshold=0,mixed:shape=$binary,specinfer:shape=$binary
    for shape in $chain $binary sparse; do methods+=,traversal:shape=$shape; done
    expect acceptance_law --methods "$(drafted "$methods")"
    # About 25 nodes, as the sparse tree has.
    methods=traversal:shape=4x2x1x1x1,traversal:shape=2x2x2x1x1:budget=25,mixed:shape=sparse,mixed:shape=sparse:deepest=last
    for shape in talon opt-tree traversal-talon traversal-dynatree; do methods+=,$shape:budget=25; done
    expect acceptance_law_rivals --methods "$(drafted "$methods,traversal-talon:budget=25:last=top")" --temperatures 0.4,0.7,1.0
}
depths() {
    local methods='' shape
    for shape in 1x1 1x1x1 1x1x1x1 1x1x1x1x1 1x1x1x1x1x1 1x1x1x1x1x1x1 1x1x1x1x1x1x1x1 2x2 2x2x2 2x2x2x2 2x2x2x2x2; do
        methods+=traversal:shape=$shape,
    done
    expect acceptance_law_depths --methods "$(drafted "${methods%,}")" --temperatures 1.0
}
tables() {
    local methods=ar heat seed
    methods+=,rrsw:shape=$chain,block:shape=$chain,traversal:shape=$chain
    methods+=,rrsw:shape=$binary,specinfer:shape=$binary,traversal:shape=$binary
    methods+=,rrsw:shape=sparse,traversal:shape=sparse
    methods+=,fixed-tree:depth=5:breadth=2:threshold=0,mixed:shape=$binary
    for heat in 0.2 0.4 0.6 0.8 1.0; do for seed in $SEEDS; do
        bench "traversal_t${heat}_s$seed" --prompts "$families" --limit "${LIMIT:-6}" --methods "$(drafted "$methods")" --temperature "$heat" --seeds "$seed"
    done; done
}
cost() { save verifier_cost "$python" "$(dirname "$0")/verifier_cost.py" ${TINY:+--steps 1}; }
run "law depths tables cost" "$@"
