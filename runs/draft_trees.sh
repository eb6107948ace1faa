#!/usr/bin/env bash
# Draft-model and EAGLE-3 trees: token equality (batch 1 and 4, greedy and sampled), mean acceptance
# length and draft efficiency, ablations and sweeps, tokens per second.
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] runs/draft_trees.sh [lossless|tau|sweeps|speed]...
set -euo pipefail
: "${PROMPTS:?directory with the prompt files}"
OUT=${OUT:-runs/out}; LIMIT=${LIMIT:-8}; mkdir -p "$OUT"
sets=$PROMPTS/humaneval.jsonl,$PROMPTS/mbpp.jsonl,$PROMPTS/gsm8k_test.jsonl,$PROMPTS/mt_bench.jsonl,$PROMPTS/classeval.jsonl,$PROMPTS/wikitext2_test.jsonl
families=$PROMPTS/spec_bench.jsonl
bench() { draftwood bench --truncate 1024 --max-new-tokens 128 --limit "$LIMIT" "$@"; }
trees=sd,fixed-tree,dynatree,talon,opt-tree,sequoia,eagle3,goose-eagle3
heads=sd:draft=eagle3,dynatree:draft=eagle3,talon:draft=eagle3,opt-tree:draft=eagle3,sequoia:draft=eagle3,talon:chain=context,dynatree:chain=context,goose:adjacency=model

lossless() {
    for batch in 1 4; do
        bench --prompts "$sets" --dtype float32 --methods ar,hf,$trees,$heads --batch $batch --json "$OUT/draft_lossless_greedy_$batch.json"
    done
    bench --prompts "$sets" --dtype float32 --methods ar,$trees,$heads --temperature 0.8 --seed 1 --json "$OUT/draft_lossless_sampled.json"
}
tau() {  # TALON's Table 1 and 3, on Spec-Bench's families
    for t in 0 1; do
        bench --prompts "$families" --methods ar,$trees,$heads --temperature $t --seed 1 --json "$OUT/draft_tau_t$t.json"
    done
}
sweeps() {  # DynaTree's Table 4; TALON's Figures 7, 12 and 13; the best K and the best fixed tree
    local parts=dynatree:breadth=fixed:depth=fixed:history=off:prune=off,dynatree:depth=fixed:history=off:prune=off,dynatree:history=off:prune=off,dynatree:history=off,dynatree
    bench --prompts "$PROMPTS/wikitext2_test.jsonl,$PROMPTS/pg_prompts.jsonl" --methods ar,$parts,fixed-tree,fixed-tree:depth=6:breadth=2 --json "$OUT/dynatree_parts.json"
    local talons=ar,eagle3 n mu robust
    for n in 15 31 59 95; do talons+=,talon:draft=eagle3:budget=$n,eagle3:budget=$n; done
    for mu in 0.01 0.04 0.05; do talons+=,talon:draft=eagle3:mu=$mu; done
    for robust in 0 2 3; do talons+=,talon:draft=eagle3:robust=$robust; done
    bench --prompts "$families" --methods "$talons" --json "$OUT/talon_sweeps.json"
    local fixed=ar k d b
    for k in 1 2 3 4 5 6 8; do fixed+=,sd:budget=$k; done
    for d in 3 5 7 9; do for b in 1 2 3; do fixed+=,fixed-tree:depth=$d:breadth=$b; done; done
    bench --prompts "$sets" --methods "$fixed" --json "$OUT/fixed_sweeps.json"
}
speed() {
    bench --prompts "$sets" --methods ar,hf,hf-lookup,hf-assistant,goose:budget=16,sd:budget=3,fixed-tree:budget=16:depth=4,dynatree:budget=16,talon:budget=16,opt-tree:budget=16,sequoia:budget=16,eagle3:budget=16:levels=4:top_k=4,talon:draft=eagle3:budget=16,goose-eagle3:budget=16 --repeats 2 --json "$OUT/draft_speed.json"
}
for part in "${@:-lossless tau sweeps speed}"; do for each in $part; do "$each"; done; done
