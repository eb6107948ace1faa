#!/usr/bin/env bash
# Cost of a step of SmolLM2-135M-Instruct on this machine.
#   nodes        cost of a step of the target by nodes, and time of a step outside the model
#   first_token  time to the first token at 512 and 4,096 prompt tokens, beside transformers and
#                llama.cpp
#   memory       peak memory of a process that generates 256 tokens
# Usage: [OUT=runs/out] runs/smollm2/steps.sh [PART]...
#   HEAD    the EAGLE-3 head of memory; the shipped one
# Each part in float32 and in bfloat16. Quiet machine, except for memory.
# pip install 'draftwood[llamacpp]'
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/../parts.sh"
MODEL=${MODEL:-smollm2}
shipped_head

each() { # NAME SCRIPT FLAG...: in both dtypes
    local name=$1 script=$2 dtype; shift 2
    for dtype in float32 bfloat16; do
        save "smollm2_${name}_$dtype" "$python" "$runs/$script" --model "$MODEL" --dtype "$dtype" "$@"
    done
}
nodes() { each nodes engine_overhead.py ${TINY:+--context 32 --text 2000}; }
first_token() { each first_token first_token.py --methods ar,auto,hf,llamacpp ${TINY:+--lengths 32 --prompts 1}; }
memory() {
    local head=${HEAD:+:head=$HEAD}
    each memory peak_memory.py --methods "ar,goose,auto,eagle3$head,traversal:drafter=eagle3$head" --tokens 256 ${TINY:+--tokens 8}
}
run "nodes first_token memory" "$@"
