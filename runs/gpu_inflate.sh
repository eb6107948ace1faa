#!/usr/bin/env bash
# The embedded target in the shapes of large models, and its draft model in those of their drafts,
# as OUT/models/SIZE and OUT/models/draft-SIZE; records as OUT/gpu_inflate_*.json. The
# target's EAGLE-3 head is inflated with it, as OUT/models/SIZE/head.
#   targets drafts
# Usage: [OUT=runs/out] [MINUTES=8] runs/gpu_inflate.sh [PART]...
#   SIZES, DRAFT_SIZES   "1b 3b 8b" and "0.25b 0.5b 1b"
#   MODEL, DRAFT         what is inflated: embedded and embedded-draft, or directories
#   HEAD                 the head of MODEL; embedded has one
#   DEVICE               where the weights are made: cpu, cuda:0
# Exit code 124: call it again to go on.
set -euo pipefail
MINUTES=${MINUTES:-8}
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"
if [[ -n ${TINY:-} ]]; then SIZES=${SIZES:-0.25b} DRAFT_SIZES=${DRAFT_SIZES:-0.25b}; fi

if [[ ${MODEL:-embedded} == embedded ]]; then HEAD=${HEAD:-embedded-eagle3}; fi

inflated() { # MODEL SIZE NAME FLAG...
    local place=$OUT/models/$3
    mkdir -p "$OUT/models"
    if [[ ! -e $place/provenance.json ]]; then
        rm -rf "${place:?}"
        limited "${draftwood[@]}" inflate --model "$1" --size "$2" --device "${DEVICE:-cpu}" "${@:4}" "$place"
    fi
    cp "$place/provenance.json" "$OUT/gpu_inflate_$3.json"
}
targets() {
    local size
    for size in ${SIZES:-1b 3b 8b}; do inflated "${MODEL:-embedded}" "$size" "$size" ${HEAD:+--head "$HEAD"}; done
}
drafts() {
    local size
    for size in ${DRAFT_SIZES:-0.25b 0.5b 1b}; do inflated "${DRAFT:-embedded-draft}" "$size" "draft-$size"; done
}
run "targets drafts" "$@"
