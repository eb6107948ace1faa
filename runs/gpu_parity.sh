#!/usr/bin/env bash
# Does it compute the same on a GPU?
#   tests     the tests of kernels, recorded forwards and memory
#   float32   greedy tokens of every method with every drafter against plain decoding and generate
#   bfloat16  the same; every divergence is listed with the gap of the two best logits there
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=2] [MINUTES=8] runs/gpu_parity.sh [PART]...
#   MODEL   embedded, or a directory that gpu_inflate.sh made (without methods that need a head)
# Exit code 124: call it again to go on.
set -euo pipefail
MINUTES=${MINUTES:-8} MODEL=${MODEL:-embedded} LIMIT=${LIMIT:-2}
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"

tests() {
    local root code=0
    root=$(cd "$(dirname "$0")/.." && pwd)
    mkdir -p "$OUT"
    # Those of the kernels run in an interpreter where there is no GPU.
    (limited "$python" -m pytest -m "not slow" --junit-xml "$OUT/gpu_tests.xml" "$root"/tests/kernels/test_gpu_*.py \
        "$root"/tests/runner/test_cuda_graphs.py "$root"/tests/lab/bench/test_memory.py) || code=$?
    "$python" - "$OUT/gpu_tests.xml" << 'END' > "$OUT/gpu_tests.json"
import json
import sys
from xml.etree import ElementTree

suite = ElementTree.parse(sys.argv[1]).getroot().find("testsuite")
counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
failed = [
    f"{case.get('classname')}.{case.get('name')}"
    for case in suite.iter("testcase")
    if case.find("failure") is not None or case.find("error") is not None
]
print(json.dumps({**counts, "failed": failed, "seconds": float(suite.get("time"))}, indent=1))
END
    return "$code"
}
equal() { # DTYPE
    local drafters=(model) name=gpu_parity_$1
    if [[ $MODEL == embedded ]]; then drafters+=(eagle3); else name+=_${MODEL##*/}; fi
    bench "$name" --prompts "$(sets humaneval gsm8k_test mt_bench wikitext2_test)" --model "$MODEL" --dtype "$1" --methods "$(contenders all "${drafters[@]}"),hf"
}
float32() { equal float32; }
bfloat16() { equal bfloat16; }
run "tests float32 bfloat16" "$@"
