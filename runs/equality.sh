#!/usr/bin/env bash
# Every method with every drafter in float32: are its tokens, or is its law, those of plain decoding?
#   greedy_1 greedy_4    tokens, batches of 1 and 4; transformers' generate included
#   sampled_1 sampled_4  tokens at temperature 0.8, of the methods that promise a seed's tokens there
#   law                  chi-square tests at temperature 0.8 of the methods that sample their drafts
#                        and so promise the distribution only, and their exact law by enumeration;
#                        auto with the layouts that do so
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=4] [TOKENS=64] [SAMPLES=1000] runs/equality.sh [PART]...
# One thread: two calls with different parts fill two cores. No figure is a time, so that the machine
# may be busy.
set -euo pipefail
LIMIT=${LIMIT:-4} TOKENS=${TOKENS:-64} OMP_NUM_THREADS=1
export OMP_NUM_THREADS
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
six=$(sets humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test)
further=goose:adjacency=model,goose:adjacency=eagle3

equal() { # NAME PROMISE EXTRA_METHODS FLAG...
    local name=equality_$1 methods
    methods=$(contenders "$2" model eagle3),$further$3
    shift 3
    bench "$name" --prompts "$six" --dtype float32 --threads 1 --methods "$methods" "$@"
}
greedy_1() { equal greedy_1 all ,hf; }
greedy_4() { equal greedy_4 all ,hf --batch 4; }
sampled_1() { equal sampled_1 tokens:0.8 '' --temperature 0.8 --seeds 1; }
sampled_4() { equal sampled_4 tokens:0.8 '' --temperature 0.8 --seeds 1 --batch 4; }
law() {
    local drafter methods
    for drafter in model eagle3; do
        IFS=, read -ra methods <<< "$(contenders law:0.8 "$drafter")"
        methods+=("auto:drafter=$drafter:layout=either" "auto:drafter=$drafter:layout=drawn")
        save "equality_law_$drafter" checked "${methods[@]}"
    done
}
checked() { # METHOD...: a failed check (exit code 1) is a result as well
    "${draftwood[@]}" check-lossless --json --dtype float32 --threads 1 --temperature 0.8 \
        --samples "${SAMPLES:-1000}" ${TINY:+--samples 300} "$@" || [[ $? == 1 ]]
}
run "greedy_1 greedy_4 sampled_1 sampled_4 law" "$@"
