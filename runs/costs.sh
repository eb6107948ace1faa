#!/usr/bin/env bash
# Cost of a step on this machine.
#   step    cost of a step of the target by nodes, time of a step outside the model, index memory
#   level   one level of a draft-model tree outside the model, for a vocabulary of 150,000
#   rule    the gated delta rule over a tree in a layer of Qwen3.6-27B's shape
# Usage: [OUT=runs/out] runs/costs.sh [PART]...
# Quiet machine.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"

step() { save engine_overhead "$python" "$runs/engine_overhead.py" ${TINY:+--context 32 --text 2000}; }
level() { save level_cost "$python" "$runs/level_cost.py" ${TINY:+--vocabulary 500 --trees 2}; }
rule() { save rule_cost "$python" "$runs/rule_cost.py" ${TINY:+--heads 3 --width 8 --hidden 16 --seconds 0}; }
run "step level rule" "$@"
