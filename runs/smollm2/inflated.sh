#!/usr/bin/env bash
# SmolLM2-135M-Instruct at the cost of a model of half a billion weights: the same answers from larger matrices
# (docs/inflate.md), so that a forward takes most of a step. Its head is inflated as well; the shipped table and
# calibration are as they are.
#   model            writes the larger model to OUT/models/smollm2-0.5b
#   greedy sampled   4 of the sets of grid.sh, float32, batch 1, greedy and at temperature 0.7, top-p 0.9
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=2] [TOKENS=128] runs/smollm2/inflated.sh [PART]...
#   MODEL    smollm2, or a directory with a checkpoint
#   HEAD     its EAGLE-3 head; that of smollm2 is shipped, another model needs none
#   SHAPE    flags of draftwood inflate, for another size
#   TABLE    an adjacency table; the shipped one
#   THREADS  torch's threads
# About 20 minutes for each of the last two, on two cores. Quiet machine.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/../parts.sh"
MODEL=${MODEL:-smollm2} large=$OUT/models/smollm2-0.5b
# Twice the width and the heads of SmolLM2.
read -ra shape <<< "${SHAPE:---hidden 1152 --layers 30 --heads 18 --kv-heads 6 --head-dim 64 --ffn 3072}"
table=${TABLE:-$runs/../draftwood/assets/smollm2/table.safetensors}
shipped_head
# What methods draft with.
drafts=() with_head=
if [[ -n ${HEAD:-} ]]; then
    drafts=(--head "$HEAD") with_head="auto:adjacency.table=$table:head=$large/head,eagle3:head=$large/head,"
fi

model() {
    if [[ -e $large/provenance.json && (-z ${HEAD:-} || -d $large/head) ]]; then return; fi
    rm -rf "${large:?}"
    mkdir -p "${large%/*}"
    limited "${draftwood[@]}" inflate --model "$MODEL" ${drafts[@]+"${drafts[@]}"} "${shape[@]}" --dtype float32 "$large"
}
speed() { # NAME FLAG...
    local name=smollm2_inflated_$1; shift
    bench "$name" --model "$large" --dtype float32 --prompts "$(sets humaneval mt_bench),$(with_texts)" --chat --truncate 2048 \
        --limit "${LIMIT:-2}" --max-new-tokens "${TOKENS:-128}" ${THREADS:+--threads "$THREADS"} \
        --methods "ar,${with_head}auto:adjacency.table=$table,auto:shipped=off,goose:budget=16:adjacency.table=$table,goose:budget=16,pld,hf,hf-lookup:tokens=10" "$@"
}
greedy() { speed greedy; }
sampled() { speed sampled --temperature 0.7 --top-p 0.9 --seeds 1; }
run "model greedy sampled" "$@"
