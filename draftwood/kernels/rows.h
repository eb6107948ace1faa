// Products of few rows with a weight matrix in the layout of nn.Linear: y = x @ w.T + bias.
//
// A step of decoding multiplies every weight with 1 to 64 rows, so that reading the weight takes most of the time. Here
// every thread reads its part of the weight from memory once, front to back. Every element of y is summed in one order,
// whatever the number of rows: a token's result does not depend on the tokens beside it. A weight may be int8 with a
// scale for each of its rows.

#pragma once

#include "vectors.h"

namespace {

constexpr int MOST = REGISTERS == 32 ? 9 : 4;  // rows of x that are multiplied together
constexpr int BLOCK = 12;                      // rows of w that stay in the cache for FEW rows of x
constexpr int64_t FEW = 64;                    // rows of x that stay in the cache for all rows of w

template <class T, class S> struct Weight {
    const S* w;           // [outputs, inputs]
    const float* scales;  // [outputs], of int8
    const T* bias;        // [outputs], or null
    int64_t outputs, inputs;
};

// R rows of w with M rows of x. Meanwhile LINES rows' worth of w comes from memory, from `ahead` on.
template <class T, class S, int R, int M, int LINES>
inline void tile(const Weight<T, S>& weight, int64_t o, const T* x, T* y, const S* ahead) {
    typedef Kind<T> K;
    typedef typename K::Vector Vector;
    constexpr int LINE = 64 / sizeof(S);  // elements
    const int64_t n = weight.inputs;
    const S* w = weight.w + o * n;
    constexpr int GROUPS = (R * M + LANES - 1) / LANES;
    Floats sums[GROUPS * LANES] = {};  // [M, R], filled up
    int64_t k = 0;
    for (; k + K::STEP <= n; k += K::STEP) {
        Vector parts[R];
        for (int r = 0; r < R; r++) parts[r] = K::read(w + r * n + k);
        // In the order of memory: that is much faster than a line of each row in turn. A step over int8 may read less
        // than a line, which is then asked for once.
        for (int i = 0; i < LINES * K::STEP; i += LINE)
            if (LINE <= K::STEP || (LINES * k + i) % LINE < LINES * K::STEP) __builtin_prefetch(ahead + LINES * k + i, 0, 2);
        for (int m = 0; m < M; m++) {
            Vector other = K::read(x + m * n + k);
            IN_REGISTER(other);
            for (int r = 0; r < R; r++) sums[m * R + r] = K::product(sums[m * R + r], parts[r], other);
        }
    }
    if (k < n) {  // the rest, filled up with zeros
        S rest[K::STEP];
        T other_rest[K::STEP];
        std::memset(rest, 0, sizeof rest);
        std::memset(other_rest, 0, sizeof other_rest);
        Vector parts[R];
        for (int r = 0; r < R; r++) {
            std::memcpy(rest, w + r * n + k, (n - k) * sizeof(S));
            parts[r] = K::read(rest);
        }
        for (int m = 0; m < M; m++) {
            std::memcpy(other_rest, x + m * n + k, (n - k) * sizeof(T));
            const Vector other = K::read(other_rest);
            for (int r = 0; r < R; r++) sums[m * R + r] = K::product(sums[m * R + r], parts[r], other);
        }
    }
    float found[GROUPS * LANES];
    for (int g = 0; g < GROUPS; g++) {
        const Floats group = summed(sums + g * LANES);
        std::memcpy(found + g * LANES, &group, sizeof group);
    }
    for (int r = 0; r < R; r++) {
        const float bias = weight.bias ? K::wide(weight.bias[o + r]) : 0.0f;
        const float scale = sizeof(S) == 1 ? weight.scales[o + r] : 1.0f;
        for (int m = 0; m < M; m++) y[m * weight.outputs + o + r] = K::narrow(found[m * R + r] * scale + bias);
    }
}

// Rows of w that are multiplied together: their sums, their parts and one of x fit into the registers.
template <int M> constexpr int ROWS = (REGISTERS - 1) / (M + 1) >= 4 ? 4 : (REGISTERS - 1) / (M + 1);

// BLOCK rows of w with M rows of x.
template <class T, class S, int M, int LINES>
void block(const Weight<T, S>& weight, int64_t o, const T* x, T* y, const S* ahead) {
    constexpr int R = ROWS<M>;
    static_assert(BLOCK % R == 0);
    for (int i = 0; i < BLOCK; i += R) tile<T, S, R, M, LINES>(weight, o + i, x, y, ahead + i * weight.inputs);
}

// The next block comes from memory while this one is multiplied with all rows of x: part `turn` of it, of `turns`.
template <class T, class S, int M>
void turn_of_block(const Weight<T, S>& weight, int64_t o, const T* x, T* y, const S* ahead, int64_t turn,
                   int64_t turns) {
    constexpr int R = ROWS<M>, SOME = (R + 1) / 2;
    const int64_t lines = !ahead ? 0 : turns == 1 ? R : turns < R ? SOME : 1;
    if (turn * lines >= R || lines == 0) return block<T, S, M, 0>(weight, o, x, y, weight.w);
    ahead += turn * lines * weight.inputs;
    if (lines == R)
        block<T, S, M, R>(weight, o, x, y, ahead);
    else if (lines == SOME)
        block<T, S, M, SOME>(weight, o, x, y, ahead);
    else
        block<T, S, M, 1>(weight, o, x, y, ahead);
}

template <class T, class S>
using Turn = void (*)(const Weight<T, S>&, int64_t, const T*, T*, const S*, int64_t, int64_t);

template <class T, class S, int... M> constexpr auto turns_of(std::integer_sequence<int, M...>) {
    struct { Turn<T, S> by_rows[sizeof...(M)]; } found{{turn_of_block<T, S, M + 1>...}};
    return found;
}

// Rows first to end of w with all rows of x.
template <class T, class S>
void part(const Weight<T, S>& weight, int64_t first, int64_t end, const T* x, T* y, int64_t rows) {
    static constexpr auto TURNS = turns_of<T, S>(std::make_integer_sequence<int, MOST>());
    // Turns of equal numbers of rows, of which the last may have some of the one before: with unequal numbers, turns
    // would differ in ROWS, and ask for some of the next block twice and for some of it not at all.
    const int64_t n = weight.inputs, turns = (rows + MOST - 1) / MOST, each = (rows + turns - 1) / turns;
    const Turn<T, S> turn = TURNS.by_rows[each - 1];
    int64_t o = first;
    for (; o + BLOCK <= end; o += BLOCK) {
        const S* ahead = o + 2 * BLOCK <= end ? weight.w + (o + BLOCK) * n : nullptr;
        for (int64_t i = 0; i < turns; i++) {
            const int64_t m = i + 1 < turns ? i * each : rows - each;
            turn(weight, o, x + m * n, y + m * weight.outputs, ahead, i, turns);
        }
    }
    for (; o < end; o++)
        for (int64_t m = 0; m < rows; m++)
            tile<T, S, 1, 1, 0>(weight, o, x + m * n, y + m * weight.outputs, weight.w);
}

// What one of `threads` threads computes of y = x @ w.T + bias.
template <class T, class S>
void product(const Weight<T, S>& weight, int64_t thread, int64_t threads, const T* x, T* y, int64_t rows) {
    const int64_t first = weight.outputs * thread / threads, end = weight.outputs * (thread + 1) / threads;
    for (int64_t done = 0; done < rows; done += FEW) {
        const int64_t some = rows - done < FEW ? rows - done : FEW;
        part<T, S>(weight, first, end, x + done * weight.inputs, y + done * weight.outputs, some);
    }
}

// The same for a weight of T, or of int8 if it has scales.
template <class T>
void product_of(const void* w, const float* scales, const void* bias, int64_t outputs, int64_t inputs, int64_t thread,
                int64_t threads, const void* x, void* y, int64_t rows) {
    const T *given_bias = static_cast<const T*>(bias), *given = static_cast<const T*>(x);
    T* into = static_cast<T*>(y);
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
    product_of<T>(p.w, p.scales, call.bias, p.outputs, p.inputs, p.openmp->thread(), p.openmp->threads(), call.x, call.y,
                  call.rows);
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
