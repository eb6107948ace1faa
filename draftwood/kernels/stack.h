// Consecutive decoder layers like Llama's on few rows, with their attention over cached keys and values.

#pragma once

#include "attention.h"
#include "layers.h"

namespace {

struct Stack {
    const Layer* const* layers;
    void *const *keys, *const *values;  // of each layer, [entries, kv_heads * width]
    int64_t count;                      // of layers
    const void *x, *cos, *sin;          // [rows, hidden]; [period, width]
    void* const* ys;                    // what each layer returns, [rows, hidden]; null: only the next one reads it
    void* work;                         // [rows, 2 (q + kv + inner) + 3 hidden]
    int64_t rows, period;
    const int64_t* entries;  // where the cache keeps the rows
    int64_t shift;           // elements before the first entry that attention sees
    Attention attention;     // of all layers, without queries, keys, values and output
};

// Rows into the entries of the cache that keep them.
template <class T> void keep(T* cached, const T* rows, const int64_t* entries, Range own, int64_t width) {
    for (int64_t row = own.begin; row < own.end; row++)
        std::memcpy(cached + entries[row] * width, rows + row * width, width * sizeof(T));
}

template <class T> void run_layers(Member& member, const Stack& s) {
    const Layer& first = *s.layers[0];
    const int64_t rows = s.rows, kv = first.k.outputs, hidden = first.o.outputs;
    T *q = static_cast<T*>(s.work), *k = q + rows * first.q.outputs, *v = k + rows * kv, *attended = v + rows * kv;
    T* const unread[2] = {attended + rows * first.q.outputs, attended + rows * (first.q.outputs + hidden)};
    T* work = unread[1] + rows * hidden;
    const T *x = static_cast<const T*>(s.x), *cos = static_cast<const T*>(s.cos), *sin = static_cast<const T*>(s.sin);
    for (int64_t i = 0; i < s.count; i++) {
        const Layer& layer = *s.layers[i];
        T *keys = static_cast<T*>(s.keys[i]), *values = static_cast<T*>(s.values[i]);
        T* y = s.ys[i] ? static_cast<T*>(s.ys[i]) : unread[i % 2];
        before(member, layer, x, cos, sin, s.period, q, k, v, work, rows);
        keep(keys, k, s.entries, member.part(rows), kv);
        keep(values, v, s.entries, member.part(rows), kv);
        member.wait();
        Attention attention = s.attention;
        attention.q = q;
        attention.k = keys + s.shift;
        attention.v = values + s.shift;
        attention.out = attended;
        run_attention(&attention);
        member.wait();
        after(member, layer, attended, x, y, work, rows);
        member.wait();
        x = y;
    }
}

}  // namespace

extern "C" void draftwood_stack(const Stack* stack) {
    together(stack->layers[0]->openmp, [=](Member& member) {
        if (stack->attention.narrow)
            run_layers<bfloat16>(member, *stack);
        else
            run_layers<float>(member, *stack);
    });
}
