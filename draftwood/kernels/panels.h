// Products of rows with a weight matrix in panels: [outputs / PANEL, inputs, PANEL].
//
// In the layout of nn.Linear, a vector has inputs of one output, and every sum has to be added up over its lanes. Here
// a vector has one input of LANES outputs, and is multiplied with an element of x. That leaves nearly nothing but
// arithmetic, which is what a step of many rows takes its time for. The weight is read once for all rows, front to
// back. Every element of y is summed in one order, whatever the number of rows.

#pragma once

#include "vectors.h"

namespace {

constexpr int PANEL = 32;                    // outputs that lie together
constexpr int VECTORS = PANEL / LANES;       // of a panel, for one input
constexpr int PANEL_ROWS = 12;               // rows of x that are multiplied together
constexpr int64_t SUMMED = 128;              // inputs that are summed alone: long sums lose digits
constexpr bool HAS_PANELS = LANES == 16;     // with fewer lanes and registers they are no faster

struct Panels {
    const float *w, *bias;  // bias may be null
    int64_t outputs, inputs;
};

// M rows of x with a panel. Meanwhile a line of each vector comes from memory for every `gap` inputs, from `ahead` on;
// none if that is null. Returns what is ahead then.
template <int M>
const float* panel(const float* w, const float* bias, const float* x, int64_t n, float* y, int64_t outputs,
                   const float* ahead, int64_t gap) {
    Floats totals[M * VECTORS] = {};
    int64_t due = ahead ? 0 : n;
    for (int64_t k = 0; k < n;) {
        Floats sums[M * VECTORS] = {};
        for (const int64_t end = n - k < SUMMED ? n : k + SUMMED; k < end; k++) {
            if (k == due) {
                unrolled<VECTORS>([&](auto v) ALWAYS_INLINE { __builtin_prefetch(ahead + v * LANES, 0, 2); });
                ahead += PANEL;
                due += gap;
            }
            Floats parts[VECTORS];
            unrolled<VECTORS>([&](auto v) ALWAYS_INLINE {
                parts[v] = load<Floats>(w + k * PANEL + v * LANES);
                IN_REGISTER(parts[v]);
            });
            unrolled<M>([&](auto m) ALWAYS_INLINE {
                Floats one = all(x[m * n + k]);
                IN_REGISTER(one);
                unrolled<VECTORS>([&](auto v) ALWAYS_INLINE { sums[m * VECTORS + v] += parts[v] * one; });
            });
        }
        unrolled<M * VECTORS>([&](auto i) ALWAYS_INLINE { totals[i] += sums[i]; });
    }
    unrolled<M>([&](auto m) ALWAYS_INLINE {
        unrolled<VECTORS>([&](auto v) ALWAYS_INLINE {
            Floats found = totals[m * VECTORS + v];
            if (bias) found += load<Floats>(bias + v * LANES);
            store(y + m * outputs + v * LANES, found);
        });
    });
    return ahead;
}

// Panels first to end with all rows of x, M at a time. The next panel comes from memory meanwhile, spread over them.
template <int M>
void panels_with(const Panels& p, int64_t first, int64_t end, const float* x, float* y, int64_t rows, int64_t turns) {
    const int64_t n = p.inputs;
    for (int64_t at = first; at < end; at++) {
        const float *w = p.w + at * PANEL * n, *ahead = at + 1 < end ? w + PANEL * n : nullptr;
        const float* limit = w + 2 * PANEL * n;
        for (int64_t i = 0; i < turns; i++) {
            const int64_t m = i + 1 < turns ? i * M : rows - M;  // the last turn may have some of the one before
            ahead = panel<M>(w, p.bias ? p.bias + at * PANEL : nullptr, x + m * n, n, y + m * p.outputs + at * PANEL,
                             p.outputs, ahead, turns);
            if (ahead >= limit) ahead = nullptr;
        }
    }
}

using PanelsWith = void (*)(const Panels&, int64_t, int64_t, const float*, float*, int64_t, int64_t);

template <int... M> constexpr auto panels_of(std::integer_sequence<int, M...>) {
    struct { PanelsWith by_rows[sizeof...(M)]; } found{{panels_with<M + 1>...}};
    return found;
}

// Columns first to end, which are whole panels, of y = x @ w.T + bias.
template <int MOST_ROWS = PANEL_ROWS>  // a template, so that it is compiled where it is used only
void panelled(const Panels& p, int64_t first, int64_t end, const float* x, float* y, int64_t rows) {
    static constexpr auto WITH = panels_of(std::make_integer_sequence<int, MOST_ROWS>());
    const int64_t turns = (rows + MOST_ROWS - 1) / MOST_ROWS, each = (rows + turns - 1) / turns;
    if (rows > 0) WITH.by_rows[each - 1](p, first / PANEL, end / PANEL, x, y, rows, turns);
}

}  // namespace

// Outputs of a panel; 0: there are none for this processor.
extern "C" int64_t draftwood_panel() { return HAS_PANELS ? PANEL : 0; }
