// Products of few rows with a weight matrix in the layout of nn.Linear: y = x @ w.T + bias.
//
// A step of decoding multiplies every weight with 1 to 64 rows, so that reading the weight takes most of the time. Here
// every thread reads its part of the weight from memory once, front to back. Every element of y is summed in one order,
// whatever the number of rows: a token's result does not depend on the tokens beside it. A weight may be int8 with a
// scale for each of its rows. One of bfloat16 is multiplied by tiles where the processor has them (tiles.h), and one of
// float32 may lie in panels (panels.h).

#pragma once

#include "panels.h"
#include "tiles.h"
#include "vectors.h"

namespace {

constexpr int MOST = REGISTERS == 32 ? 9 : 4;  // rows of x that are multiplied together
constexpr int BLOCK = 12;                      // rows of w that are multiplied with FEW rows of x before the next
constexpr int64_t FEW = 64;                    // rows of x that stay in the cache for all rows of w

template <class T, class S> struct Weight {
    const S* w;           // [outputs, inputs]
    const float* scales;  // [outputs], of int8
    const T* bias;        // [outputs], or null
    int64_t outputs, inputs;
};

// Sums [M, R], in SUMS floats, of R rows of w with M rows of x, all of n elements. Meanwhile a line comes from memory
// for every `gap` elements of a row, from `ahead` on; none if that is null. Returns what is ahead then.
template <class T, class S, int R, int M>
inline const S* tile(const S* w, const T* x, int64_t n, const S* ahead, int64_t gap, float* found) {
    typedef Kind<T> K;
    int64_t k = 0, due = ahead ? 0 : n;
    Floats sums[SUMS<R * M>] = {};
    for (; k + K::STEP <= n; k += K::STEP) {
        // In the order of memory: that is much faster than a line of each row in turn.
        for (; due <= k; due += gap, ahead += LINE / sizeof(S)) __builtin_prefetch(ahead, 0, 2);
        add_products<K, R, M>([=](int r) ALWAYS_INLINE { return K::read(w + r * n + k); },
                              [=](int m) ALWAYS_INLINE { return K::read(x + m * n + k); }, sums);
    }
    if (k < n) {
        const auto filled = [=](auto* from) ALWAYS_INLINE {  // the rest, filled up with zeros
            std::decay_t<decltype(*from)> rest[K::STEP];
            std::memset(rest, 0, sizeof rest);
            std::memcpy(rest, from, (n - k) * sizeof *from);
            return K::read(rest);
        };
        add_products<K, R, M>([=](int r) ALWAYS_INLINE { return filled(w + r * n + k); },
                              [=](int m) ALWAYS_INLINE { return filled(x + m * n + k); }, sums);
    }
    put_sums<R * M>(sums, found);
    return ahead;
}

// COUNT columns of y, from o on, of what tiles of R of them found.
template <class T, class S, int R, int M, int COUNT>
inline void put(const Weight<T, S>& weight, int64_t o, const float* found, T* y) {
    typedef Kind<T> K;
    float bias[COUNT], scale[COUNT];
    for (int i = 0; i < COUNT; i++) bias[i] = weight.bias ? K::wide(weight.bias[o + i]) : 0.0f;
    for (int i = 0; i < COUNT; i++) scale[i] = sizeof(S) == 1 ? weight.scales[o + i] : 1.0f;
    for (int m = 0; m < M; m++, y += weight.outputs) {
        float row[COUNT];
        for (int i = 0; i < COUNT; i++) row[i] = found[i / R * SUMS<R * M> + m * R + i % R];
        for (int i = 0; i < COUNT; i++) y[o + i] = K::narrow(row[i] * scale[i] + bias[i]);
    }
}

// Rows of w that are multiplied together: their sums, their parts and one of x fit into the registers.
template <int M> constexpr int ROWS = (REGISTERS - 1) / (M + 1) >= 4 ? 4 : (REGISTERS - 1) / (M + 1);

// BLOCK rows of w with M rows of x. Meanwhile lines come from memory, as for a tile.
template <class T, class S, int M>
const S* block(const Weight<T, S>& weight, int64_t o, const T* x, T* y, const S* ahead, int64_t gap) {
    constexpr int R = ROWS<M>, TILES = BLOCK / R;
    static_assert(BLOCK % R == 0);
    float found[TILES * SUMS<R * M>];
    const int64_t n = weight.inputs;
    const S* w = weight.w + o * n;
    for (int i = 0; i < TILES; i++) ahead = tile<T, S, R, M>(w + i * R * n, x, n, ahead, gap, found + i * SUMS<R * M>);
    put<T, S, R, M, BLOCK>(weight, o, found, y);
    return ahead;
}

// BLOCK rows of w with all rows of x, M at a time. The next block comes from memory meanwhile, spread over all of them:
// in a burst, it would hold up what comes from the second cache.
template <class T, class S, int M>
void blocks(const Weight<T, S>& weight, int64_t o, const T* x, T* y, int64_t rows, int64_t turns, bool last) {
    const int64_t n = weight.inputs, gap = turns * (LINE / sizeof(S)) / ROWS<M>;
    const S *next = weight.w + (o + BLOCK) * n, *end = next + BLOCK * n, *ahead = last ? nullptr : next;
    for (int64_t i = 0; i < turns; i++) {
        const int64_t m = i + 1 < turns ? i * M : rows - M;
        ahead = block<T, S, M>(weight, o, x + m * n, y + m * weight.outputs, ahead, gap);
        if (ahead >= end) ahead = nullptr;
    }
}

template <class T, class S> using Blocks = void (*)(const Weight<T, S>&, int64_t, const T*, T*, int64_t, int64_t, bool);

template <class T, class S, int... M> constexpr auto blocks_of(std::integer_sequence<int, M...>) {
    struct { Blocks<T, S> by_rows[sizeof...(M)]; } found{{blocks<T, S, M + 1>...}};
    return found;
}

// Rows first to end of w with all rows of x.
template <class T, class S>
void part(const Weight<T, S>& weight, int64_t first, int64_t end, const T* x, T* y, int64_t rows) {
    static constexpr auto BLOCKS = blocks_of<T, S>(std::make_integer_sequence<int, MOST>());
    // Turns of equal numbers of rows, of which the last may have some of the one before.
    const int64_t n = weight.inputs, turns = (rows + MOST - 1) / MOST, each = (rows + turns - 1) / turns;
    int64_t o = first;
    for (; o + BLOCK <= end; o += BLOCK)
        BLOCKS.by_rows[each - 1](weight, o, x, y, rows, turns, o + 2 * BLOCK > end);
    if (o < end && o > first) {  // a last block, which finds some of the one before once more
        BLOCKS.by_rows[each - 1](weight, end - BLOCK, x, y, rows, turns, true);
        o = end;
    }
    for (; o < end; o++)
        for (int64_t m = 0; m < rows; m++) {
            float found[SUMS<1>];
            tile<T, S, 1, 1>(weight.w + o * n, x + m * n, n, nullptr, 0, found);
            put<T, S, 1, 1, 1>(weight, o, found, y + m * weight.outputs);
        }
}

// Columns of y that one of `threads` threads computes; whole panels, if the weight lies in some.
inline Range columns_of(int64_t outputs, int64_t in_panels, int64_t thread, int64_t threads) {
    if (!in_panels) return part_of(outputs, thread, threads);
    const auto [first, end] = part_of(outputs / PANEL, thread, threads);
    return {first * PANEL, end * PANEL};
}

// What one of `threads` threads computes of y = x @ w.T + bias.
template <class T, class S>
void product(const Weight<T, S>& weight, int64_t thread, int64_t threads, const T* x, T* y, int64_t rows) {
    const auto [first, end] = part_of(weight.outputs, thread, threads);
#if defined(HAS_TILES)
    if constexpr (std::is_same_v<S, bfloat16>) {
        if (tiles_allowed())
            return tiled({weight.w, weight.bias, weight.outputs, weight.inputs}, first, end, x, y, rows);
    }
#endif
    for (int64_t done = 0; done < rows; done += FEW) {
        const int64_t some = rows - done < FEW ? rows - done : FEW;
        part<T, S>(weight, first, end, x + done * weight.inputs, y + done * weight.outputs, some);
    }
}

// The same for a weight of T, or of int8 if it has scales, or of float32 in panels.
template <class T>
void product_of(const void* w, const float* scales, const void* bias, int64_t outputs, int64_t inputs,
                int64_t in_panels, int64_t thread, int64_t threads, const void* x, void* y, int64_t rows) {
    const T *given_bias = static_cast<const T*>(bias), *given = static_cast<const T*>(x);
    T* into = static_cast<T*>(y);
    if constexpr (HAS_PANELS && std::is_same_v<T, float>) {
        if (in_panels) {
            const auto [first, end] = columns_of(outputs, in_panels, thread, threads);
            return panelled<>({static_cast<const float*>(w), given_bias, outputs, inputs}, first, end, given, into, rows);
        }
    }
    if (scales)
        product<T, int8_t>({static_cast<const int8_t*>(w), scales, given_bias, outputs, inputs}, thread, threads, given,
                           into, rows);
    else
        product<T, T>({static_cast<const T*>(w), nullptr, given_bias, outputs, inputs}, thread, threads, given, into,
                      rows);
}

}  // namespace

struct Product {
    const OpenMP* openmp;
    const void* w;
    const float* scales;  // of int8, else null
    int64_t outputs, inputs;
    int64_t in_panels;
    int64_t narrow;  // bfloat16, else float32
};

namespace {

struct Call {
    const Product* product;
    const void *bias, *x;
    void* y;
    int64_t rows;
};

template <class T> void run_product(const Call& call) {
    const Product& p = *call.product;
    product_of<T>(p.w, p.scales, call.bias, p.outputs, p.inputs, p.in_panels, p.openmp->thread(), p.openmp->threads(),
                  call.x, call.y, call.rows);
}

void run_products(void* given) {
    const Call& call = *static_cast<const Call*>(given);
    if (call.product->narrow)
        run_product<bfloat16>(call);
    else
        run_product<float>(call);
}

}  // namespace

// x [rows, inputs], bias [outputs] or null, y [rows, outputs].
extern "C" void draftwood_multiply(const Product* product, const void* bias, const void* x, void* y, int64_t rows) {
    Call call{product, bias, x, y, rows};
    product->openmp->parallel(run_products, &call, 0, 0);
}
