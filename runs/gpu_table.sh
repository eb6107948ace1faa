#!/usr/bin/env bash
# Speed on one large GPU in cells, each a decoding and a number of prompts at once; the model is loaded once for all of
# them (gpu_table.py, which can be called by itself).
#   greedy_1 greedy_4 greedy_16 greedy_64   plain decoding, auto, its chains, goose, and with a HEAD eagle3 and talon
#   sampled_1 sampled_16                    the same at temperature 1
#   peers_1                                 plain decoding and transformers' generate, a prompt of a set, 32 tokens
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=2] [MINUTES=8] runs/gpu_table.sh [PART]...
#   MODEL     what is measured, or inflated: smollm2, or a directory
#   SIZE      the shape to which MODEL is inflated in memory; empty: the model as it is
#   HEAD      an EAGLE-3 head of MODEL, which is inflated with it
#   SETS      names of prompt files: "humaneval gsm8k_test mt_bench spec_bench"
#   METHODS, DTYPE, SEEDS, REPEATS   other methods than the usual ones, bfloat16, 0 and 1
# Exit code 124: call it again to go on.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
MODEL=${MODEL:-smollm2} cells=()
if [[ -n ${SIZE:-} ]]; then model=(--source "$MODEL" --inflate "$SIZE"); else model=(--model "$MODEL"); fi
read -ra names <<< "${SETS:-humaneval gsm8k_test mt_bench spec_bench}"

cell() { cells+=("$part"); }
greedy_1() { cell; }
greedy_4() { cell; }
greedy_16() { cell; }
greedy_64() { cell; }
sampled_1() { cell; }
sampled_16() { cell; }
peers_1() { cell; }
run "greedy_1 greedy_4 greedy_16 greedy_64 sampled_1 sampled_16 peers_1" "$@"
"$python" "$runs/gpu_table.py" "${model[@]}" ${HEAD:+--head "$HEAD"} --cells "$(IFS=,; echo "${cells[*]}")" \
    --prompts "$(sets "${names[@]}")" --limit "${LIMIT:-2}" --tokens "${TOKENS:-128}" --dtype "${DTYPE:-bfloat16}" \
    --seeds "${SEEDS:-0}" --repeats "${REPEATS:-1}" ${METHODS:+--methods "$METHODS"} --seconds $((60 * ${MINUTES:-8})) \
    --out "$OUT" ${TINY:+--limit 1 --tokens 8 --truncate 64 --peer-tokens 8}
