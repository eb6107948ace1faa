#!/usr/bin/env bash
# Cost of a step on this machine.
#   step    cost of a step of the target by nodes, time of a step outside the model, index memory
#   level   one level of a draft-model tree outside the model, for a vocabulary of 150,000
#   rule    the gated delta rule over a tree in a layer of Qwen3.6-27B's shape, and that of Kimi-Linear-48B-A3B with
#           a decay for each channel
# Usage: [OUT=runs/out] runs/costs.sh [PART]...
# Quiet machine.
set -euo pipefail
# shellcheck source=runs/parts.sh
source "$(dirname "$0")/parts.sh"

step() { save engine_overhead "$python" "$runs/engine_overhead.py" ${TINY:+--context 32 --text 2000}; }
level() { save level_cost "$python" "$runs/level_cost.py" ${TINY:+--vocabulary 500 --trees 2}; }
rule() {
    local tiny=(${TINY:+--heads 3 --width 8 --hidden 16 --seconds 0})
    save rule_cost "$python" "$runs/rule_cost.py" ${tiny[@]+"${tiny[@]}"}
    save rule_cost_by_channel "$python" "$runs/rule_cost.py" --by-channel --heads 32 --hidden 2304 ${tiny[@]+"${tiny[@]}"}
}
run "step level rule" "$@"
