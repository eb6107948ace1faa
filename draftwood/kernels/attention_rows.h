// A few rows of attention by vectors: softmax(q @ k.T * scale + mask) @ v.
//
// Query heads that share a key head are rows of one product, so that keys and values are read once for them. The keys
// come in spans, with a running maximum (online softmax). A row is computed in one order, whatever the rows beside it.
// Sequences may differ in queries and keys: then their queries lie behind one another, in one batch of queries.

#pragma once

#include "vectors.h"

namespace {

constexpr int TOGETHER = 4;                      // rows that are computed together
constexpr int MANY = 32;                         // rows that share what they read of keys and values
constexpr int KEYS = REGISTERS == 32 ? 4 : 2;    // keys that rows are multiplied with at a time
constexpr int VALUES = REGISTERS == 32 ? 4 : 2;  // vectors of values that are added to them at a time
constexpr int64_t SPAN = 128;                    // keys between two looks at the maximum
constexpr int64_t WIDEST = 512;
constexpr int64_t READ = 12;                     // rows that take as long as reading what they share, in float32

// Keys and values of a key head from `start` on, up to SPAN of them, the number of those from there on, and the mask of
// the first row.
template <class T> struct Span {
    const T *keys, *values, *mask;
    int64_t k_row, v_row, mask_row, start, count, left, width;
    bool unread = true;  // by any row
};

// Strides in elements; those of a query, key or value row's own elements are 1.
struct Attention {
    const OpenMP* openmp;
    const void *q, *k, *v, *mask;  // mask [batch, group * queries, keys], or null
    void* out;                     // [batch, queries, heads, width], contiguous
    int64_t batch, heads, kv_heads, queries, keys, width;
    int64_t q_batch, q_head, q_row;
    int64_t k_batch, k_head, k_row;
    int64_t v_batch, v_head, v_row;
    int64_t mask_batch, mask_row;
    double scale;
    int64_t narrow;  // bfloat16, else float32
    const int64_t *starts, *lengths;  // first query of each sequence and the end [batch + 1]; keys [batch]; or null
    const int64_t* in_order;  // [batch]: whether the queries are the last tokens, in order, and have no mask; or null
    const int64_t* places;  // [batch]: where each sequence's keys and values are among those of all; null: in turn

    // First query of a sequence among all, their number, and its keys.
    int64_t first(int64_t sequence) const { return starts ? starts[sequence] : sequence * queries; }
    int64_t count(int64_t sequence) const { return first(sequence + 1) - first(sequence); }
    int64_t seen(int64_t sequence) const { return lengths ? lengths[sequence] : keys; }
    bool ordered(int64_t sequence) const { return in_order && in_order[sequence]; }

    // Keys that a row of a key head sees: all of them, or those up to its own.
    int64_t seen_by(int64_t sequence, int64_t row) const {
        const int64_t own = count(sequence), all = seen(sequence);
        return ordered(sequence) ? all - own + row % own + 1 : all;
    }

    // Products of the first rows of a sequence, of all heads, with the keys that they see.
    int64_t products(int64_t sequence, int64_t rows) const {
        const int64_t own = count(sequence), all = seen(sequence);
        if (!rows || !ordered(sequence)) return rows * all;
        const int64_t others = all - own, whole = rows / own, rest = rows % own;
        return whole * (own * others + own * (own + 1) / 2) + rest * others + rest * (rest + 1) / 2;
    }

    // Row r of a key head is query r % count of the head's query head r / count: where its query is, and where its
    // output belongs.
    template <class T> const T* query(int64_t sequence, int64_t kv_head, int64_t row) const {
        const int64_t own = count(sequence), head = kv_head * (heads / kv_heads) + row / own;
        const int64_t before = starts ? starts[sequence] * q_row : sequence * q_batch;
        return static_cast<const T*>(q) + before + head * q_head + row % own * q_row;
    }
    template <class T> T* output(int64_t sequence, int64_t kv_head, int64_t row) const {
        const int64_t own = count(sequence), head = kv_head * (heads / kv_heads) + row / own;
        return static_cast<T*>(out) + ((first(sequence) + row % own) * heads + head) * width;
    }

    // What the first rows of a sequence, of all heads, cost: their products, and for each key head as many more as could
    // be computed while its keys and values come from memory, spread over its rows.
    int64_t cost(int64_t sequence, int64_t rows) const {
        const int64_t each = heads / kv_heads * count(sequence);
        return rows ? products(sequence, rows) + READ * seen(sequence) * rows / each : 0;
    }

    // SPAN keys and values of a key head from `start` on, fewer before `end`, and the mask of row `first` for them.
    template <class T> Span<T> span(int64_t sequence, int64_t kv_head, int64_t first, int64_t start,
                                    int64_t end) const {
        const int64_t left = end - start;
        const bool masked = mask && !ordered(sequence);
        const int64_t place = places ? places[sequence] : sequence;
        return {static_cast<const T*>(k) + place * k_batch + kv_head * k_head + start * k_row,
                static_cast<const T*>(v) + place * v_batch + kv_head * v_head + start * v_row,
                masked ? static_cast<const T*>(mask) + sequence * mask_batch + first * mask_row + start : nullptr,
                k_row, v_row, mask_row, start, left < SPAN ? left : SPAN, left, width};
    }
};

// Products of M queries [M, width] with N keys into `scores` [M, SPAN].
template <class T, int M, int N>
inline void score_keys(const float* queries, const T* keys, int64_t stride, int64_t width, float* scores) {
    Floats sums[SUMS<M * N>] = {};
    for (int64_t i = 0; i < width; i += LANES)
        add_products<Kind<float>, N, M>(
            [=](int n) ALWAYS_INLINE { return Kind<T>::floats(keys + n * stride + i); },
            [=](int m) ALWAYS_INLINE { return load<Floats>(queries + m * width + i); }, sums);
    float found[SUMS<M * N>];
    put_sums<M * N>(sums, found);
    for (int m = 0; m < M; m++) std::memcpy(scores + m * SPAN, found + m * N, sizeof(float) * N);
}

// Adds N vectors of `count` weighted values, from element i on, to `sums` [M, width].
template <class T, int M, int N>
inline void add_values(const float* weights, const T* values, int64_t stride, int64_t count, int64_t width,
                       float* sums) {
    Floats found[M * N];
    unrolled<M * N>([&](auto i) ALWAYS_INLINE { found[i] = load<Floats>(sums + i / N * width + i % N * LANES); });
    for (int64_t key = 0; key < count; key++)
        add_products<Kind<float>, N, M>(
            [=](int n) ALWAYS_INLINE { return Kind<T>::floats(values + key * stride + n * LANES); },
            [=](int m) ALWAYS_INLINE { return all(weights[m * SPAN + key]); }, found);
    unrolled<M * N>([&](auto i) ALWAYS_INLINE { store(sums + i / N * width + i % N * LANES, found[i]); });
}

// What is known of a row after some keys: the highest score, and the sums of weights and of weighted values, with the
// weight e^(score - highest). It sees so many keys.
struct Found {
    float highest, divisor;
    int64_t seen;
};

// Keys that any of some rows sees.
inline int64_t seen_by_any(const Found* found, int64_t rows) {
    int64_t seen = 0;
    for (int64_t row = 0; row < rows; row++) seen = found[row].seen > seen ? found[row].seen : seen;
    return seen;
}

// Scores of a row for the keys of a span, up to SPAN in whole vectors, become weights. What is known of the row, and its
// sums [width] so far, are brought to its new highest score.
template <class T>
inline void weigh(float* score, const Span<T>& span, const T* mask, Found& row, float* sums) {
    typedef Kind<T> K;
    const int64_t count = span.count, width = span.width, filled = (count + LANES - 1) / LANES * LANES;
    const int64_t hidden = row.seen > span.start ? row.seen - span.start : 0;  // from there on
    for (int64_t i = hidden < count ? hidden : count; i < filled; i++) score[i] = -__builtin_inff();
    if (mask) {
        int64_t i = 0;
        for (; i + LANES <= count; i += LANES) store(score + i, load<Floats>(score + i) + K::floats(mask + i));
        for (; i < count; i++) score[i] += K::wide(mask[i]);
    }
    Floats highest = load<Floats>(score);
    for (int64_t i = LANES; i < filled; i += LANES) highest = larger(highest, load<Floats>(score + i));
    const float now = greatest(highest), before = row.highest, next = now > before ? now : before;
    if (now == -__builtin_inff() && next == now) {  // nothing was visible so far; not a number is something
        for (int64_t i = 0; i < filled; i++) score[i] = 0.0f;
        return;
    }
    row.highest = next;
    Floats divisor = {};
    for (int64_t i = 0; i < filled; i += LANES) {
        const Floats weight = exponential(load<Floats>(score + i) - next);
        store(score + i, weight);
        divisor += weight;
    }
    if (before != next) {
        const float factor = exponential(all(before - next))[0];
        row.divisor *= factor;
        for (int64_t i = 0; i < width; i += LANES) store(sums + i, load<Floats>(sums + i) * factor);
    }
    row.divisor += total(divisor);
}

// A row's weighted mean of all values.
template <class T> inline void put_row(const Found& row, const float* sums, int64_t width, T* out) {
    const float factor = 1.0f / row.divisor;
    for (int64_t i = 0; i < width; i += LANES) Kind<T>::put(out + i, load<Floats>(sums + i) * factor);
}

// M rows [M, width], and what is found of them with the keys so far, with the keys of one more span. The first
// of them fetch its values, and the next keys.
template <class T, int M> void add_span(const Span<T>& span, const float* queries, Found* rows, float* sums) {
    const int64_t count = span.count, width = span.width;
    float scores[M * SPAN];
    int64_t key = 0;
    for (; key + KEYS <= count; key += KEYS) {
        if (span.unread)
            for (int i = 0; i < KEYS; i++) {
                fetch(span.values + (key + i) * span.v_row, width);
                if (key + i + SPAN < span.left) fetch(span.keys + (key + i + SPAN) * span.k_row, width);
            }
        score_keys<T, M, KEYS>(queries, span.keys + key * span.k_row, span.k_row, width, scores + key);
    }
    for (; key < count; key++)
        score_keys<T, M, 1>(queries, span.keys + key * span.k_row, span.k_row, width, scores + key);
    for (int m = 0; m < M; m++)
        weigh(scores + m * SPAN, span, span.mask ? span.mask + m * span.mask_row : nullptr, rows[m], sums + m * width);
    int64_t i = 0;
    for (; i + VALUES * LANES <= width; i += VALUES * LANES)
        add_values<T, M, VALUES>(scores, span.values + i, span.v_row, count, width, sums + i);
    for (; i < width; i += LANES) add_values<T, M, 1>(scores, span.values + i, span.v_row, count, width, sums + i);
}

// Rows `first` to `first + rows` of one key head, at most MANY.
template <class T> void attend(const Attention& a, int64_t sequence, int64_t kv_head, int64_t first, int64_t rows) {
    typedef Kind<T> K;
    const int64_t width = a.width;
    float queries[MANY * WIDEST], sums[MANY * WIDEST];
    Found found[MANY];
    for (int64_t m = 0; m < rows; m++) {
        const T* query = a.query<T>(sequence, kv_head, first + m);
        for (int64_t i = 0; i < width; i += LANES) {
            store(queries + m * width + i, K::floats(query + i) * float(a.scale));
            store(sums + m * width + i, Floats{});
        }
        found[m] = {-__builtin_inff(), 0.0f, a.seen_by(sequence, first + m)};
    }
    const int64_t seen = seen_by_any(found, rows);
    for (int64_t start = 0; start < seen; start += SPAN) {
        Span<T> span = a.span<T>(sequence, kv_head, first, start, seen);
        for (int64_t m = 0; m < rows; m += TOGETHER) {
            const float* some = queries + m * width;
            switch (rows - m) {
                case 1: add_span<T, 1>(span, some, found + m, sums + m * width); break;
                case 2: add_span<T, 2>(span, some, found + m, sums + m * width); break;
                case 3: add_span<T, 3>(span, some, found + m, sums + m * width); break;
                default: add_span<T, TOGETHER>(span, some, found + m, sums + m * width);
            }
            span.unread = false;
            if (span.mask) span.mask += TOGETHER * a.mask_row;
        }
    }
    for (int64_t m = 0; m < rows; m++)
        put_row(found[m], sums + m * width, width, a.output<T>(sequence, kv_head, first + m));
}

}  // namespace
