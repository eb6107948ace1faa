// Attention of the queries of each sequence over its cached keys, by vectors or by tiles, in all threads.

#pragma once

#include "attention_rows.h"
#include "attention_tiles.h"

namespace {

// Computes rows of one key head of a sequence: those from the fourth argument on, as many as the fifth.
using Attend = void (*)(const Attention&, int64_t, int64_t, int64_t, int64_t);

// What one thread computes: a share of the cost, as runs of up to `most` rows of one key head.
void attention_part(const Attention& a, Attend attend, int64_t most) {
    const int64_t thread = a.openmp->thread(), threads = a.openmp->threads(), group = a.heads / a.kv_heads;
    int64_t all = 0;
    for (int64_t batch = 0; batch < a.batch; batch++) all += a.cost(batch, a.heads * a.count(batch));
    const auto [begin, end] = part_of(all, thread, threads);
    int64_t passed = 0;
    for (int64_t batch = 0; batch < a.batch; batch++) {
        const int64_t each = group * a.count(batch), rows = a.kv_heads * each, own = a.cost(batch, rows);
        // A row is of the thread in whose share its cost begins.
        const auto reached = [&](int64_t cost) {
            if (cost <= passed) return int64_t(0);
            if (cost >= passed + own) return rows;
            int64_t before = 0, found = rows;  // the first row at or behind this cost is above `before`
            while (found - before > 1) {
                const int64_t middle = (before + found) / 2;
                (a.cost(batch, middle) >= cost - passed ? found : before) = middle;
            }
            return found;
        };
        const int64_t last = reached(end);
        for (int64_t row = reached(begin); row < last;) {
            const int64_t kv_head = row / each, first = row % each;
            const int64_t left = last - row < each - first ? last - row : each - first;
            const int64_t some = left < most ? left : most;
            attend(a, batch, kv_head, first, some);
            row += some;
        }
        passed += own;
    }
}

void run_attention(void* given) {
    const Attention& a = *static_cast<const Attention*>(given);
#if defined(HAS_TILES)
    if (a.narrow && a.width % DEPTH == 0 && tiles_allowed()) {
        shape_tiles(SIDE, SIDE);
        attention_part(a, attend_by_tiles, MANY_BY_TILES);
        _tile_release();
        return;
    }
#endif
    attention_part(a, a.narrow ? attend<bfloat16> : attend<float>, MANY);
}

}  // namespace

// The width is a multiple of 16 up to 512.
extern "C" void draftwood_attention(const Attention* a) {
    a->openmp->parallel(run_attention, const_cast<Attention*>(a), 0, 0);
}
