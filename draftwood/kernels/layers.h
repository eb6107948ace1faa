// Llama's decoder layer on few rows, but for its attention: what comes before, and what comes after.
//
// In bfloat16 every result is rounded where PyTorch's operations would round it.

#pragma once

#include "norms.h"
#include "rows.h"
#include "team.h"

struct Linear {
    const void* w;        // [outputs, inputs], or in panels
    const float* scales;  // [outputs], of an int8 weight; else null
    const void* bias;     // [outputs] or null
    int64_t outputs, inputs;
    int64_t in_panels;
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

// y += x, for columns of rows.
template <class T> void add(T* y, const T* x, int64_t rows, int64_t width, Range columns) {
    typedef Kind<T> K;
    for (int64_t row = 0; row < rows; row++, x += width, y += width)
        every(
            columns.begin, columns.end, [=](int64_t i) { K::put(y + i, K::floats(y + i) + K::floats(x + i)); },
            [=](int64_t i) { y[i] = K::narrow(K::wide(y[i]) + K::wide(x[i])); });
}

inline Floats silu(Floats x) {
    const Integers negative = (Integers)(x < 0.0f);
    const Floats e = exponential((Floats)((Integers)x | INT32_MIN)), one = all(1.0f);  // of -|x|
    return x * (Floats)(((Integers)e & negative) | ((Integers)one & ~negative)) / (one + e);
}

// gate = silu(gate) * up, for columns of rows.
template <class T> void activate(T* gate, const T* up, int64_t rows, int64_t width, Range columns) {
    typedef Kind<T> K;
    for (int64_t row = 0; row < rows; row++, gate += width, up += width)
        every(
            columns.begin, columns.end,
            [=](int64_t i) { K::put(gate + i, rounded<T>(silu(K::floats(gate + i))) * K::floats(up + i)); },
            [=](int64_t i) {
                const float active = K::wide(K::narrow(silu(all(K::wide(gate[i])))[0]));
                gate[i] = K::narrow(active * K::wide(up[i]));
            });
}

// Rotates the halves of every head against each other: x * cos + (-x2, x1) * sin. Row r has factors r % period.
template <class T>
void rotate(T* x, const T* cos, const T* sin, Range rows, int64_t period, int64_t heads, int64_t width) {
    typedef Kind<T> K;
    x += rows.begin * heads * width;
    const int64_t half = width / 2;
    for (int64_t row = rows.begin; row < rows.end; row++) {
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

template <class T> void norm(const Norm& norm, const T* x, T* y, Range rows, int64_t width) {
    const int64_t before = rows.begin * width;
    ::norm(x + before, static_cast<const T*>(norm.w), y + before, rows.end - rows.begin, width, float(norm.eps),
           norm.early != 0);
}

// A thread's part of y = x @ w.T + bias.
template <class T> void multiply(const Member& member, const Linear& l, const T* x, T* y, int64_t rows) {
    product_of<T>(l.w, l.scales, l.bias, l.outputs, l.inputs, l.in_panels, member.thread, member.threads, x, y, rows);
}

// The columns that it computes.
inline Range columns(const Member& member, const Linear& l) {
    return columns_of(l.outputs, l.in_panels, member.thread, member.threads);
}

template <class T>
void before(Member& member, const Layer& l, const T* x, const T* cos, const T* sin, int64_t period, T* q, T* k, T* v,
            T* work, int64_t rows) {
    const Range own = member.part(rows);
    norm(l.first, x, work, own, l.q.inputs);
    member.wait();
    multiply(member, l.q, work, q, rows);
    multiply(member, l.k, work, k, rows);
    multiply(member, l.v, work, v, rows);
    member.wait();
    const int64_t heads = l.q.outputs / l.width, kv_heads = l.k.outputs / l.width;
    if (l.q_norm.w) norm(l.q_norm, q, q, {own.begin * heads, own.end * heads}, l.width);
    if (l.k_norm.w) norm(l.k_norm, k, k, {own.begin * kv_heads, own.end * kv_heads}, l.width);
    rotate(q, cos, sin, own, period, heads, l.width);
    rotate(k, cos, sin, own, period, kv_heads, l.width);
}

template <class T>
void after(Member& member, const Layer& l, const T* attended, const T* x, T* y, T* work, int64_t rows) {
    const int64_t hidden = l.o.outputs, inner = l.gate.outputs;
    T *normed = work, *gate = normed + rows * hidden, *up = gate + rows * inner;
    multiply(member, l.o, attended, y, rows);
    add(y, x, rows, hidden, columns(member, l.o));
    member.wait();
    norm(l.second, y, normed, member.part(rows), hidden);
    member.wait();
    multiply(member, l.gate, normed, gate, rows);
    multiply(member, l.up, normed, up, rows);
    if (l.gate.in_panels != l.up.in_panels) member.wait();  // else each thread has the same columns of both
    activate(gate, up, rows, inner, columns(member, l.gate));
    member.wait();
    multiply(member, l.down, gate, normed, rows);
    add(y, normed, rows, hidden, columns(member, l.down));
}

}  // namespace

// From x [rows, hidden] to q [rows, heads * width], k and v [rows, kv_heads * width]. cos and sin [period, width];
// work [rows, hidden].
extern "C" void draftwood_before_attention(const Layer* layer, const void* x, const void* cos, const void* sin,
                                           int64_t period, void* q, void* k, void* v, void* work, int64_t rows) {
    together(layer->openmp, [=](Member& member) {
        if (layer->narrow)
            before(member, *layer, static_cast<const bfloat16*>(x), static_cast<const bfloat16*>(cos),
                   static_cast<const bfloat16*>(sin), period, static_cast<bfloat16*>(q), static_cast<bfloat16*>(k),
                   static_cast<bfloat16*>(v), static_cast<bfloat16*>(work), rows);
        else
            before(member, *layer, static_cast<const float*>(x), static_cast<const float*>(cos),
                   static_cast<const float*>(sin), period, static_cast<float*>(q), static_cast<float*>(k),
                   static_cast<float*>(v), static_cast<float*>(work), rows);
    });
}

// From attended [rows, heads * width] and the layer's input x [rows, hidden] to its output y [rows, hidden]; work
// [rows, hidden + 2 * inner].
extern "C" void draftwood_after_attention(const Layer* layer, const void* attended, const void* x, void* y, void* work,
                                          int64_t rows) {
    together(layer->openmp, [=](Member& member) {
        if (layer->narrow)
            after(member, *layer, static_cast<const bfloat16*>(attended), static_cast<const bfloat16*>(x),
                  static_cast<bfloat16*>(y), static_cast<bfloat16*>(work), rows);
        else
            after(member, *layer, static_cast<const float*>(attended), static_cast<const float*>(x),
                  static_cast<float*>(y), static_cast<float*>(work), rows);
    });
}
