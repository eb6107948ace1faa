#!/usr/bin/env bash
# DynaTree, by its paper's protocol: greedy, continuations of WikiText-2 and of PG-19.
#   components  each part in turn (the paper's Table 4)
#   fixed       its rivals at their best: chains of K, fixed trees of D, B and tau (its Figure 7)
#   long        1,500 new tokens, 10 prompts, cut to 800 tokens (WikiText-2; fixed tree of its Table
#               4 included) and to 1,000 (PG-19): its Tables 1 to 4
#   longer_set  the same with 512 new tokens, for 32 prompts
#   lengths     over new tokens (its Figure 6)
#   contexts    over prompt tokens (its Figure 9), on PG-19: prompts of WikiText-2 are too short
#   budgets     over the most nodes (N_max to 256, its Figure 8)
#   memory      peak memory (its Table 5), of the embedded pair
# The paper counts the drafted token under the root as depth 0, Draftwood as 1: its D = 8 is 9 here.
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] [TOKENS=128] runs/paper_dynatree.sh [PART]...
# LIMIT is 10 for long and 32 for longer_set; TOKENS is 256 for memory. MODEL, DRAFT, HEAD, CHAT and NAME
# are for another model than the embedded one (parts.sh); without a DRAFT all trees are the head's.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
another_model draft
wiki=$(sets wikitext2_test)
books=$(sets pg_prompts)

components() {
    local methods=ar,fixed-tree,fixed-tree:depth=6:breadth=2 each
    for each in breadth=fixed:depth=fixed: depth=fixed: ''; do methods+=,dynatree:${each}history=off:prune=off; done
    bench dynatree_parts --prompts "$wiki,$books" --methods "$(drafted "$methods,dynatree:history=off,dynatree")"
}
fixed() {
    local methods=ar each breadth
    for each in 1 2 3 4 5 6 8; do methods+=,sd:budget=$each; done
    for each in 3 5 7 9; do for breadth in 1 2 3; do methods+=,fixed-tree:depth=$each:breadth=$breadth; done; done
    for each in 0 0.03 0.3; do methods+=,fixed-tree:threshold=$each; done
    bench fixed_sweeps --prompts "$(usual)" --methods "$(drafted "$methods")"
}
protocol() { # NAME FLAG...: Table 1's and Table 4's methods on both sets
    local name=$1; shift
    bench "$name" --prompts "$wiki" --truncate 800 "$@" --methods "$(drafted ar,sd:budget=8,fixed-tree,fixed-tree:depth=6:breadth=2,dynatree:history=off,dynatree)"
    bench "${name}_pg" --prompts "$books" --truncate 1000 "$@" --methods "$(drafted ar,sd:budget=5,fixed-tree,dynatree:max_depth=10)"
}
long() { protocol dynatree_long --limit "${LIMIT:-10}" --max-new-tokens 1500; }
longer_set() { protocol dynatree_512 --limit "${LIMIT:-32}" --max-new-tokens 512; }
lengths() {
    local tokens
    for tokens in 128 256 512 1024; do
        bench "dynatree_tokens_$tokens" --prompts "$wiki" --truncate 800 --max-new-tokens "$tokens" --methods "$(drafted ar,sd:budget=8,fixed-tree,dynatree)"
    done
}
contexts() {
    local tokens
    for tokens in 100 200 400 800; do
        bench "dynatree_context_$tokens" --prompts "$books" --truncate "$tokens" --methods "$(drafted ar,sd:budget=5,fixed-tree,dynatree)"
    done
}
budgets() {
    local methods=ar each
    for each in 16 32 64 128 256; do methods+=,dynatree:budget=$each,fixed-tree:budget=$each; done
    bench dynatree_budgets --prompts "$wiki,$books" --methods "$(drafted "$methods")"
}
memory() {
    if [[ $MODEL != embedded ]]; then echo "$0: memory is measured of the embedded pair" >&2; return; fi
    save peak_memory "$python" "$(dirname "$0")/peak_memory.py" --tokens "${TOKENS:-256}" ${TINY:+--tokens 8} \
        --methods ar,goose,sd,fixed-tree,dynatree,talon,opt-tree,sequoia,eagle3,talon:drafter=eagle3,traversal
}
run "components fixed long longer_set lengths contexts budgets memory" "$@"
