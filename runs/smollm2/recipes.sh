#!/usr/bin/env bash
# What the memory of earlier requests adds in the recipes of docs/memory.md, and to unrelated prompts
# after each: SmolLM2-135M-Instruct, auto with its table.
#   agent       the same files with another order in each turn
#   epochs      the same prompts with other seeds, at temperature 1
#   repository  the second half of a file, where the other files are remembered
# Usage: PROMPTS=dir [OUT=runs/out] [LIMIT=4] [TOKENS=128] runs/smollm2/recipes.sh [PART]...
# Quiet machine.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/../parts.sh"
MODEL=${MODEL:-smollm2}

recipe() {
    save "smollm2_memory_$part" "$python" "$(dirname "$0")/memory.py" "$part" --model "$MODEL" \
        --directory "${PROMPTS:?directory with the prompt files}" --folder "${runs%/*}/draftwood" \
        --limit "${LIMIT:-4}" --max-new-tokens "${TOKENS:-128}" ${TINY:+--limit 1 --max-new-tokens 8 --truncate 64}
}
agent() { recipe; }
epochs() { recipe; }
repository() { recipe; }
run "agent epochs repository" "$@"
