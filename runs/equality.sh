#!/usr/bin/env bash
# Token equality with plain decoding, float32: every method with every drafter that it may have.
#   greedy_1 greedy_4    batches of 1 and 4, transformers' generate included
#   sampled_1 sampled_4  temperature 0.8: the methods whose accept rule keeps a seed's tokens, and not
#                        only their law (for that: draftwood check-lossless --all)
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] runs/equality.sh [PART]...
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
six=$(sets humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test)

equal() { # NAME RULE EXTRA_METHODS FLAG...
    local name=lossless_every_$1 methods
    methods=$(contenders "$2" model eagle3)$3,goose:adjacency=model,goose:adjacency=eagle3
    shift 3
    bench "$name" --prompts "$six" --dtype float32 --methods "$methods" "$@"
}
greedy_1() { equal greedy_1 all ,hf; }
greedy_4() { equal greedy_4 all ,hf --batch 4; }
sampled_1() { equal sampled_1 walk '' --temperature 0.8 --seeds 1; }
sampled_4() { equal sampled_4 walk '' --temperature 0.8 --seeds 1 --batch 4; }
run "greedy_1 greedy_4 sampled_1 sampled_4" "$@"
