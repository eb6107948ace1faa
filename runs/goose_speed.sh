#!/usr/bin/env bash
# Tokens per second, batch 1 and 8. Run it on a quiet machine.
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=8] runs/goose_speed.sh
set -euo pipefail
: "${PROMPTS:?directory with the prompt files}"
OUT=${OUT:-runs/out}; LIMIT=${LIMIT:-8}; mkdir -p "$OUT"
sets=$PROMPTS/humaneval.jsonl,$PROMPTS/mbpp.jsonl,$PROMPTS/classeval.jsonl,$PROMPTS/gsm8k_test.jsonl,$PROMPTS/mt_bench.jsonl,$PROMPTS/wikitext2_test.jsonl
bench() { draftwood bench --prompts "$sets" --truncate 1024 --max-new-tokens 128 --limit "$LIMIT" "$@"; }
methods=ar,hf,hf-lookup,hf-assistant,goose:budget=8,goose:budget=12,goose:budget=16,goose:budget=24,goose:budget=59,pld:budget=10,tr:budget=16,iso3:budget=16
bench --methods $methods --repeats 3 --json "$OUT/speed_greedy.json"
bench --methods $methods --repeats 3 --temperature 0.8 --seed 1 --json "$OUT/speed_sampled.json"
bench --methods ar,hf,goose:budget=8 --batch 8 --repeats 2 --json "$OUT/speed_batch8.json"
