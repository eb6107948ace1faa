// Llama's decoder layer on few rows, but for its attention: what comes before, and what comes after.
//
// In bfloat16 every result is rounded where PyTorch's operations would round it.

#pragma once

#include "norms.h"
#include "rows.h"

struct Linear {
    const void* w;        // [outputs, inputs]
    const float* scales;  // [outputs], of an int8 weight; else null
    const void* bias;     // [outputs] or null
    int64_t outputs, inputs;
};

struct Norm {
    const void* w;  // null: there is no such norm
    double eps;
    int64_t early;
};

struct Layer {
    const OpenMP* openmp;
    Linear q, k, v, o, gate, up, down;
    Norm first, second, q_norm, k_norm;
    int64_t width;   // of a head
    int64_t narrow;  // bfloat16, else float32
};

namespace {

template <class T> inline Floats rounded(Floats x) {
    T found[LANES];
    Kind<T>::put(found, x);
    return Kind<T>::floats(found);
}

// Calls f(i) for the first of every LANES elements, and g(i) for every element that is left.
template <class F, class G> inline void every(int64_t first, int64_t end, F f, G g) {
    int64_t i = first;
    for (; i + LANES <= end; i += LANES) f(i);
    for (; i < end; i++) g(i);
}

// y += x.
template <class T> void add(T* y, const T* x, int64_t count) {
    typedef Kind<T> K;
    every(
        0, count, [=](int64_t i) { K::put(y + i, K::floats(y + i) + K::floats(x + i)); },
        [=](int64_t i) { y[i] = K::narrow(K::wide(y[i]) + K::wide(x[i])); });
}

inline Floats silu(Floats x) {
    const Integers negative = (Integers)(x < 0.0f);
    const Floats e = exponential((Floats)((Integers)x | INT32_MIN)), one = all(1.0f);  // of -|x|
    return x * (Floats)(((Integers)e & negative) | ((Integers)one & ~negative)) / (one + e);
}

// gate = silu(gate) * up, for columns first to end.
template <class T> void activate(T* gate, const T* up, int64_t rows, int64_t columns, int64_t first, int64_t end) {
    typedef Kind<T> K;
    for (int64_t row = 0; row < rows; row++, gate += columns, up += columns)
        every(
            first, end, [=](int64_t i) { K::put(gate + i, rounded<T>(silu(K::floats(gate + i))) * K::floats(up + i)); },
            [=](int64_t i) {
                const float active = K::wide(K::narrow(silu(all(K::wide(gate[i])))[0]));
                gate[i] = K::narrow(active * K::wide(up[i]));
            });
}

// Rotates the halves of every head against each other: x * cos + (-x2, x1) * sin. Row r has factors r % period.
template <class T>
void rotate(T* x, const T* cos, const T* sin, int64_t rows, int64_t period, int64_t heads, int64_t width) {
    typedef Kind<T> K;
    const int64_t half = width / 2;
    for (int64_t row = 0; row < rows; row++) {
        const T *c = cos + row % period * width, *s = sin + row % period * width;
        for (int64_t head = 0; head < heads; head++, x += width) {
            T* other = x + half;
            every(
                0, half,
                [=](int64_t i) {
                    const Floats one = K::floats(x + i), two = K::floats(other + i);
                    K::put(x + i, rounded<T>(one * K::floats(c + i)) - rounded<T>(two * K::floats(s + i)));
                    K::put(other + i, rounded<T>(two * K::floats(c + half + i)) + rounded<T>(one * K::floats(s + half + i)));
                },
                [=](int64_t i) {
                    const float one = K::wide(x[i]), two = K::wide(other[i]);
                    auto product = [](float a, T b) { return K::wide(K::narrow(a * K::wide(b))); };
                    x[i] = K::narrow(product(one, c[i]) - product(two, s[i]));
                    other[i] = K::narrow(product(two, c[half + i]) + product(one, s[half + i]));
                });
        }
    }
}

template <class T> void norm(const Norm& norm, const T* x, T* y, int64_t rows, int64_t width) {
    ::norm(x, static_cast<const T*>(norm.w), y, rows, width, float(norm.eps), norm.early != 0);
}

// Linears of one x, in all threads. With `gated`, the second is multiplied into the first's activation.
struct Linears {
    const OpenMP* openmp;
    const Linear* linears[3];
    void* y[3];
    int64_t count;
    const void* x;
    int64_t rows;
    bool gated;
};

template <class T> void run_linears(void* given) {
    const Linears& call = *static_cast<const Linears*>(given);
    const int64_t thread = call.openmp->thread(), threads = call.openmp->threads();
    for (int64_t i = 0; i < call.count; i++) {
        const Linear& l = *call.linears[i];
        product_of<T>(l.w, l.scales, l.bias, l.outputs, l.inputs, thread, threads, call.x, call.y[i], call.rows);
    }
    if (call.gated) {
        const int64_t columns = call.linears[0]->outputs;
        activate(static_cast<T*>(call.y[0]), static_cast<const T*>(call.y[1]), call.rows, columns,
                 columns * thread / threads, columns * (thread + 1) / threads);
    }
}

template <class T> void multiply_all(Linears call) { call.openmp->parallel(run_linears<T>, &call, 0, 0); }

template <class T>
void before(const Layer& l, const T* x, const T* cos, const T* sin, int64_t period, T* q, T* k, T* v, T* work,
            int64_t rows) {
    norm(l.first, x, work, rows, l.q.inputs);
    multiply_all<T>({l.openmp, {&l.q, &l.k, &l.v}, {q, k, v}, 3, work, rows, false});
    const int64_t heads = l.q.outputs / l.width, kv_heads = l.k.outputs / l.width;
    if (l.q_norm.w) norm(l.q_norm, q, q, rows * heads, l.width);
    if (l.k_norm.w) norm(l.k_norm, k, k, rows * kv_heads, l.width);
    rotate(q, cos, sin, rows, period, heads, l.width);
    rotate(k, cos, sin, rows, period, kv_heads, l.width);
}

template <class T> void after(const Layer& l, const T* attended, const T* x, T* y, T* work, int64_t rows) {
    const int64_t hidden = l.o.outputs, inner = l.gate.outputs;
    T *normed = work, *gate = normed + rows * hidden, *up = gate + rows * inner;
    multiply_all<T>({l.openmp, {&l.o}, {y}, 1, attended, rows, false});
    add(y, x, rows * hidden);
    norm(l.second, y, normed, rows, hidden);
    multiply_all<T>({l.openmp, {&l.gate, &l.up}, {gate, up}, 2, normed, rows, true});
    multiply_all<T>({l.openmp, {&l.down}, {normed}, 1, gate, rows, false});
    add(y, normed, rows * hidden);
}

}  // namespace

// From x [rows, hidden] to q [rows, heads * width], k and v [rows, kv_heads * width]. cos and sin [period, width];
// work [rows, hidden].
extern "C" void draftwood_before_attention(const Layer* layer, const void* x, const void* cos, const void* sin,
                                           int64_t period, void* q, void* k, void* v, void* work, int64_t rows) {
    if (layer->narrow)
        before(*layer, static_cast<const bfloat16*>(x), static_cast<const bfloat16*>(cos),
               static_cast<const bfloat16*>(sin), period, static_cast<bfloat16*>(q), static_cast<bfloat16*>(k),
               static_cast<bfloat16*>(v), static_cast<bfloat16*>(work), rows);
    else
        before(*layer, static_cast<const float*>(x), static_cast<const float*>(cos), static_cast<const float*>(sin),
               period, static_cast<float*>(q), static_cast<float*>(k), static_cast<float*>(v),
               static_cast<float*>(work), rows);
}

// From attended [rows, heads * width] and the layer's input x [rows, hidden] to its output y [rows, hidden]; work
// [rows, hidden + 2 * inner].
extern "C" void draftwood_after_attention(const Layer* layer, const void* attended, const void* x, void* y, void* work,
                                          int64_t rows) {
    if (layer->narrow)
        after(*layer, static_cast<const bfloat16*>(attended), static_cast<const bfloat16*>(x),
              static_cast<bfloat16*>(y), static_cast<bfloat16*>(work), rows);
    else
        after(*layer, static_cast<const float*>(attended), static_cast<const float*>(x), static_cast<float*>(y),
              static_cast<float*>(work), rows);
}
