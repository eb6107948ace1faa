#!/usr/bin/env bash
# TALON: trees of a draft model and of an EAGLE-3 head beside EAGLE-3's and their rivals', on the six
# families of Spec-Bench.
#   greedy   the paper's Table 1, and its Figures 3, 4 and 6 (acceptance by rank, steps, efficiency)
#   sampled  its Table 3, temperature 1
#   sweeps   budget, mu and ungated levels (its Figures 7, 12 and 13); delta of its rival OPT-Tree
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] [SEEDS=1] runs/paper_talon.sh [PART]...
# MODEL, DRAFT, HEAD, CHAT and NAME are for another model than the embedded one (parts.sh); without a
# DRAFT all trees are the head's.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
another_model draft head
families=$(sets spec_bench)
trees=ar,sd,fixed-tree,eagle3,goose-eagle3,goose:adjacency=model
for each in dynatree talon opt-tree sequoia; do trees+=,$each,$each:drafter=eagle3; done
trees=$(drafted "$trees,sd:drafter=eagle3,talon:chain=context,dynatree:chain=context")

greedy() { bench draft_tau_t0 --prompts "$families" --methods "$trees"; }
sampled() { bench draft_tau_t1 --prompts "$families" --methods "$trees" --temperature 1 --seeds "${SEEDS:-1}"; }
sweeps() {
    local methods=ar,eagle3,talon:drafter=eagle3 each
    if [[ $MODEL != embedded && -n ${DRAFT:-} ]]; then methods+=,talon; fi
    for each in 15 31 95; do methods+=,talon:drafter=eagle3:budget=$each,eagle3:budget=$each; done
    for each in 0.01 0.04 0.05 0.1 0.2 0.3 0.4 0.5; do methods+=,talon:drafter=eagle3:mu=$each; done
    for each in 0 2 3; do methods+=,talon:drafter=eagle3:robust=$each; done
    methods+=,opt-tree:drafter=eagle3
    for each in 0.02 0.05 0.1 0.4; do methods+=,opt-tree:drafter=eagle3:delta=$each; done
    bench talon_sweeps --prompts "$families" --methods "$methods"
}
run "greedy sampled sweeps" "$@"
