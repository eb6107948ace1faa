#!/usr/bin/env bash
# A small model with recurrent layers that speaks: three gated DeltaNet layers to each attention layer (the layout of
# Qwen3.5), trained on the text of the embedded target by its recipe.
#   model            trains it from the text in DATA into OUT/models/hybrid; stopped, it goes on when called again
#   greedy sampled   `auto` and methods that copy from the text beside plain decoding and transformers' generate, six
#                    sets, float32, batch 1, greedy and at temperature 0.7, top-p 0.9
# Usage: PROMPTS=dir DATA=dir [OUT=runs/out] [LIMIT=8] [TOKENS=128] runs/hybrid.sh [PART]...
#   TARGET_TOKENS   of the training, 20 million
#   PRECISION       of the training: bfloat16, or float32 on a CPU without instructions for it
#   THREADS         torch's threads
# On two cores with AVX512-BF16, model takes an hour and a quarter, the others 10 minutes each. Quiet machine.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
trained=$OUT/models/hybrid run=$OUT/train_hybrid
tokens=${TARGET_TOKENS:-20000000}
if [[ -n ${TINY:-} ]]; then tokens=6144; fi

model() {
    if [[ -e $trained/provenance.json ]]; then return; fi
    mkdir -p "${trained%/*}"
    limited env PYTHON="$python" ASSETS="$run/assets" MODELS=target RECURRENT=3 PRECISION="${PRECISION:-bfloat16}" \
        "$runs/train_embedded.sh" "${DATA:?directory with the *.txt.gz files}" "$run" "$tokens"
    cp -r "$run/target/model" "$trained"
}
speed() { # NAME FLAG...
    local name=hybrid_$1; shift
    bench "$name" --model "$trained" --dtype float32 --prompts "$(sets humaneval mbpp classeval gsm8k_test mt_bench wikitext2_test)" \
        --repeats 3 ${THREADS:+--threads "$THREADS"} --methods ar,auto,goose:budget=16,goose:budget=8,pld,hf "$@"
}
greedy() { speed greedy; }
sampled() { speed sampled --temperature 0.7 --top-p 0.9 --seeds 1; }
run "model greedy sampled" "$@"
