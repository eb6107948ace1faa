#!/usr/bin/env bash
# Token equality with plain decoding and with transformers' generate, float32.
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=64] runs/goose_lossless.sh
set -euo pipefail
: "${PROMPTS:?directory with the prompt files}"
OUT=${OUT:-runs/out}; LIMIT=${LIMIT:-64}; mkdir -p "$OUT"
sets=$PROMPTS/humaneval.jsonl,$PROMPTS/mbpp.jsonl,$PROMPTS/gsm8k_test.jsonl,$PROMPTS/mt_bench.jsonl,$PROMPTS/classeval.jsonl,$PROMPTS/wikitext2_test.jsonl
bench() { draftwood bench --prompts "$sets" --dtype float32 --truncate 1024 "$@"; }
bench --limit "$LIMIT" --methods ar,pld,tr,iso3,iso5,goose,hf --budget 59 --max-new-tokens 128 --json "$OUT/lossless_greedy.json"
bench --limit 8 --methods ar,pld,tr,iso3,iso5,goose,hf --budget 16 --max-new-tokens 512 --json "$OUT/lossless_greedy_512.json"
bench --limit "$LIMIT" --methods ar,pld,tr,iso3,iso5,goose --budget 59 --max-new-tokens 128 --temperature 0.8 --seed 1 --json "$OUT/lossless_sampled.json"
