// Products of few rows with a weight matrix in the layout of nn.Linear: y = x @ w.T + bias.
//
// A step of decoding multiplies every weight with 1 to 64 rows, so that reading the weight takes most of the time. Here
// every thread reads its part of the weight from memory once, front to back. Every element of y is summed in one order,
// whatever the number of rows: a token's result does not depend on the tokens beside it.

#pragma once

#include "vectors.h"

namespace {

constexpr int MOST = REGISTERS == 32 ? 8 : 4;  // rows of x that are multiplied together
constexpr int BLOCK = 12;                      // rows of w that stay in the cache for FEW rows of x
constexpr int64_t FEW = 64;                    // rows of x that stay in the cache for all rows of w

template <class T> struct Weight {
    const T* w;     // [outputs, inputs]
    const T* bias;  // [outputs], or null
    int64_t outputs, inputs;
};

// R rows of w with M rows of x. Meanwhile LINES rows' worth of w comes from memory, from `ahead` on.
template <class T, int R, int M, int LINES>
inline void tile(const Weight<T>& weight, int64_t o, const T* x, T* y, const T* ahead) {
    typedef Kind<T> K;
    typedef typename K::Vector Vector;
    const int64_t n = weight.inputs;
    const T* w = weight.w + o * n;
    constexpr int GROUPS = (R * M + LANES - 1) / LANES;
    Floats sums[GROUPS * LANES] = {};  // [M, R], filled up
    int64_t k = 0;
    for (; k + K::STEP <= n; k += K::STEP) {
        Vector parts[R];
        for (int r = 0; r < R; r++) parts[r] = load<Vector>(w + r * n + k);
        // In the order of memory: that is much faster than a line of each row in turn.
        for (int i = 0; i < LINES; i++) __builtin_prefetch(ahead + LINES * k + i * K::STEP, 0, 2);
        for (int m = 0; m < M; m++) {
            Vector other = load<Vector>(x + m * n + k);
            IN_REGISTER(other);
            for (int r = 0; r < R; r++) sums[m * R + r] = K::product(sums[m * R + r], parts[r], other);
        }
    }
    if (k < n) {  // the rest, filled up with zeros
        const size_t bytes = (n - k) * sizeof(T);
        Vector parts[R], other;
        for (int r = 0; r < R; r++) {
            std::memset(&parts[r], 0, sizeof(Vector));
            std::memcpy(&parts[r], w + r * n + k, bytes);
        }
        for (int m = 0; m < M; m++) {
            std::memset(&other, 0, sizeof other);
            std::memcpy(&other, x + m * n + k, bytes);
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
        for (int m = 0; m < M; m++) y[m * weight.outputs + o + r] = K::narrow(found[m * R + r] + bias);
    }
}

// Rows of w that are multiplied together: their sums, their parts and one of x fit into the registers.
template <int M> constexpr int ROWS = (REGISTERS - 1) / (M + 1) >= 4 ? 4 : (REGISTERS - 1) / (M + 1);

// BLOCK rows of w with M rows of x.
template <class T, int M, int LINES>
void block(const Weight<T>& weight, int64_t o, const T* x, T* y, const T* ahead) {
    constexpr int R = ROWS<M>;
    static_assert(BLOCK % R == 0);
    for (int i = 0; i < BLOCK; i += R) tile<T, R, M, LINES>(weight, o + i, x, y, ahead + i * weight.inputs);
}

// The next block comes from memory while this one is multiplied with all rows of x: part `turn` of it, of `turns`.
template <class T, int M>
void turn_of_block(const Weight<T>& weight, int64_t o, const T* x, T* y, const T* ahead, int64_t turn, int64_t turns) {
    constexpr int R = ROWS<M>, SOME = (R + 1) / 2;
    const int64_t lines = !ahead ? 0 : turns == 1 ? R : turns < R ? SOME : 1;
    if (turn * lines >= R || lines == 0) return block<T, M, 0>(weight, o, x, y, weight.w);
    ahead += turn * lines * weight.inputs;
    if (lines == R)
        block<T, M, R>(weight, o, x, y, ahead);
    else if (lines == SOME)
        block<T, M, SOME>(weight, o, x, y, ahead);
    else
        block<T, M, 1>(weight, o, x, y, ahead);
}

template <class T> using Turn = void (*)(const Weight<T>&, int64_t, const T*, T*, const T*, int64_t, int64_t);

template <class T, int... M> constexpr auto turns_of(std::integer_sequence<int, M...>) {
    struct { Turn<T> by_rows[sizeof...(M)]; } found{{turn_of_block<T, M + 1>...}};
    return found;
}

// Rows first to end of w with all rows of x.
template <class T>
void part(const Weight<T>& weight, int64_t first, int64_t end, const T* x, T* y, int64_t rows) {
    static constexpr auto TURNS = turns_of<T>(std::make_integer_sequence<int, MOST>());
    const int64_t n = weight.inputs, turns = (rows + MOST - 1) / MOST;
    int64_t o = first;
    for (; o + BLOCK <= end; o += BLOCK) {
        const T* ahead = o + 2 * BLOCK <= end ? weight.w + (o + BLOCK) * n : nullptr;
        for (int64_t i = 0, done = 0; i < turns; i++) {  // of about equal numbers of rows
            const int64_t m = rows * (i + 1) / turns - done;
            TURNS.by_rows[m - 1](weight, o, x + done * n, y + done * weight.outputs, ahead, i, turns);
            done += m;
        }
    }
    for (; o < end; o++)
        for (int64_t m = 0; m < rows; m++)
            tile<T, 1, 1, 0>(weight, o, x + m * n, y + m * weight.outputs, weight.w);
}

// What one of `threads` threads computes of y = x @ w.T + bias.
template <class T>
void product(const Weight<T>& weight, int64_t thread, int64_t threads, const T* x, T* y, int64_t rows) {
    const int64_t first = weight.outputs * thread / threads, end = weight.outputs * (thread + 1) / threads;
    for (int64_t done = 0; done < rows; done += FEW) {
        const int64_t some = rows - done < FEW ? rows - done : FEW;
        part<T>(weight, first, end, x + done * weight.inputs, y + done * weight.outputs, some);
    }
}

}  // namespace

struct Product {
    const OpenMP* openmp;
    const void* w;
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
    const Weight<T> weight{static_cast<const T*>(p.w), static_cast<const T*>(call.bias), p.outputs, p.inputs};
    product<T>(weight, p.openmp->thread(), p.openmp->threads(), static_cast<const T*>(call.x), static_cast<T*>(call.y),
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
