#!/usr/bin/env bash
# SmolLM2-135M-Instruct in its chat template: speed and acceptance beside transformers and llama.cpp.
#   greedy sampled   the full grid: 8 sets, float32, batch 1, greedy and at temperature 0.7, top-p 0.9
#   KIND_DTYPE_BATCH the small cells, on 4 of the sets: KIND is greedy, sampled or hot (temperature 1)
#   greedy_int8_1    weights of eight bits (torchao), beside llama.cpp's of eight and of four
#   shape_KIND_BATCH auto, and auto with chains of the same sources instead of trees, on the same 4
#                    sets in float32
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] [TOKENS=256] runs/smollm2/grid.sh [PART]...
#   MODEL    smollm2, or a directory with a checkpoint
#   HEAD     its EAGLE-3 head, for eagle3 and auto; the shipped one
#   DRAFT    a small draft model of its tokenizer: adds sd to the small cells of batch 1 and 4, and
#            assisted generation to those of batch 1
#   FURTHER  more contenders, such as goose:budget=16:adjacency.table=FILE
#   THREADS  torch's threads
# LIMIT is 3 in the small cells, and the batch there where that is more, so that a batch is full. Each
# half of the full grid takes about 1.5 hours on two cores, the small cells about 6, those of shapes 1.
# Quiet machine, pip install 'draftwood[int8,llamacpp]'.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/../parts.sh"
MODEL=${MODEL:-smollm2} SEEDS=${SEEDS:-1}
shipped_head
eight=$(usual) four="$(sets humaneval mt_bench),$(with_texts)"
sampled=(--temperature 0.7 --top-p 0.9 --seeds "$SEEDS") hot=(--temperature 1 --seeds "$SEEDS")
# With all that is shipped for the model, with its table and calibration, and cold.
autos=auto,auto:shipped=table:neural=,auto:shipped=off:neural=
# The output layer on all of a prompt costs more than it adds.
goose=goose:budget=16:adjacency.prompt=false
# More levels cost more than they add, on a CPU.
eagle3=eagle3:budget=16:levels=4
own=ar,$autos,$goose,pld
# Matching 3 tokens was faster than matching 2, transformers' default, on 30 of these prompts.
peers=hf,hf-lookup:tokens=10:ngram=3,llamacpp,llamacpp-lookup
models=()
if [[ -n ${HEAD:-} ]]; then
    own+=,$eagle3
    models+=(--head "$HEAD")
else
    echo "$0: no HEAD, so eagle3 is left out" >&2
fi
own+=${FURTHER:+,$FURTHER}
# In the small cells only: both are slower than the others, and would take a third of the time.
drafts=
if [[ -n ${DRAFT:-} ]]; then
    # Named by each, as auto would draft with it.
    sd=sd:budget=5:draft=$DRAFT
    drafts=,$sd,hf-assistant:draft=$DRAFT
else
    echo "$0: no DRAFT, so assisted generation is left out" >&2
fi
# Assisted generation, prompt lookup and llama.cpp answer one prompt at a time.
batch_16=ar,$autos,hf${FURTHER:+,$FURTHER}
# goose and eagle3 take twice the time of plain decoding at batch 16, half of a run.
batch_4=$batch_16,$goose${HEAD:+,$eagle3}${DRAFT:+,$sd}

cell() { # NAME SETS METHODS FLAG...
    local name=smollm2_$1 prompts=$2 methods=$3; shift 3
    bench "$name" --model "$MODEL" --prompts "$prompts" --methods "$methods" --chat --truncate 6144 \
        --max-new-tokens "${TOKENS:-256}" ${THREADS:+--threads "$THREADS"} "${models[@]}" "$@"
}
full() { # NAME FLAG...
    local name=$1; shift
    cell "$name" "$eight" "$own,$peers" --dtype float32 "$@"
}
greedy() { full greedy; }
sampled() { full sampled "${sampled[@]}"; }
few() { # METHODS DTYPE BATCH FLAG...
    local methods=$1 dtype=$2 batch=$3 limit=${LIMIT:-3}; shift 3
    if ((limit < batch)); then limit=$batch; fi
    cell "$part" "$four" "$methods" --dtype "$dtype" --batch "$batch" --limit "$limit" "$@"
}
small() { # DTYPE BATCH FLAG...
    local methods
    case $2 in
        1) methods=$own$drafts,$peers ;;
        4) methods=$batch_4 ;;
        16) methods=$batch_16 ;;
    esac
    few "$methods" "$@"
}
shape() { # BATCH FLAG...
    few "ar,auto,auto:shape=chain" float32 "$@"
}
greedy_float32_1() { small float32 1; }
sampled_float32_1() { small float32 1 "${sampled[@]}"; }
hot_float32_1() { small float32 1 "${hot[@]}"; }
greedy_bfloat16_1() { small bfloat16 1; }
sampled_bfloat16_1() { small bfloat16 1 "${sampled[@]}"; }
hot_bfloat16_1() { small bfloat16 1 "${hot[@]}"; }
greedy_float32_4() { small float32 4; }
sampled_float32_4() { small float32 4 "${sampled[@]}"; }
hot_float32_4() { small float32 4 "${hot[@]}"; }
greedy_bfloat16_4() { small bfloat16 4; }
sampled_bfloat16_4() { small bfloat16 4 "${sampled[@]}"; }
hot_bfloat16_4() { small bfloat16 4 "${hot[@]}"; }
greedy_float32_16() { small float32 16; }
sampled_float32_16() { small float32 16 "${sampled[@]}"; }
hot_float32_16() { small float32 16 "${hot[@]}"; }
greedy_bfloat16_16() { small bfloat16 16; }
sampled_bfloat16_16() { small bfloat16 16 "${sampled[@]}"; }
hot_bfloat16_16() { small bfloat16 16 "${hot[@]}"; }
greedy_int8_1() {
    local each quantised=
    for each in q8_0 q4_1; do quantised+=,llamacpp:weights=$each,llamacpp-lookup:weights=$each; done
    few "$own,hf$quantised" int8 1
}
shape_greedy_1() { shape 1; }
shape_greedy_4() { shape 4; }
shape_greedy_16() { shape 16; }
shape_hot_1() { shape 1 "${hot[@]}"; }
shape_hot_4() { shape 4 "${hot[@]}"; }
shape_hot_16() { shape 16 "${hot[@]}"; }
run "greedy sampled greedy_float32_1 sampled_float32_1 hot_float32_1 greedy_bfloat16_1 sampled_bfloat16_1 hot_bfloat16_1 greedy_float32_4 sampled_float32_4 hot_float32_4 greedy_bfloat16_4 sampled_bfloat16_4 hot_bfloat16_4 greedy_float32_16 sampled_float32_16 hot_float32_16 greedy_bfloat16_16 sampled_bfloat16_16 hot_bfloat16_16 greedy_int8_1 shape_greedy_1 shape_greedy_4 shape_greedy_16 shape_hot_1 shape_hot_4 shape_hot_16" "$@"
