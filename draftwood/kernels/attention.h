// Attention of a few queries of each sequence over its cached keys: softmax(q @ k.T * scale + mask) @ v.
//
// Query heads that share a key head are rows of one product, so that keys and values are read once for them. The keys
// come in blocks, with a running maximum (online softmax). A row is computed in one order, whatever the rows beside it.
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

    // First query of a sequence among all, their number, and its keys.
    int64_t first(int64_t sequence) const { return starts ? starts[sequence] : sequence * queries; }
    int64_t count(int64_t sequence) const { return first(sequence + 1) - first(sequence); }
    int64_t seen(int64_t sequence) const { return lengths ? lengths[sequence] : keys; }
    // Elements before a sequence's queries.
    int64_t before(int64_t sequence) const { return starts ? starts[sequence] * q_row : sequence * q_batch; }
};

// Products of M queries [M, width] with N keys into `scores` [M, SPAN].
template <class T, int M, int N>
inline void score_keys(const float* queries, const T* keys, int64_t stride, int64_t width, float* scores) {
    Floats sums[SUMS<M * N>] = {};
    for (int64_t i = 0; i < width; i += LANES)
        add_products<Kind<float>, N, M>([=](int n) ALWAYS_INLINE { return Kind<T>::floats(keys + n * stride + i); },
                                        [=](int m) ALWAYS_INLINE { return load<Floats>(queries + m * width + i); }, sums);
    float found[SUMS<M * N>];
    put_sums<M * N>(sums, found);
    for (int m = 0; m < M; m++) std::memcpy(scores + m * SPAN, found + m * N, sizeof(float) * N);
}

// Adds N vectors of `count` weighted values, from element i on, to `sums` [M, width].
template <class T, int M, int N>
inline void add_values(const float* weights, const T* values, int64_t stride, int64_t count, int64_t width, float* sums) {
    Floats found[M * N];
    unrolled<M * N>([&](auto i) ALWAYS_INLINE { found[i] = load<Floats>(sums + i / N * width + i % N * LANES); });
    for (int64_t key = 0; key < count; key++)
        add_products<Kind<float>, N, M>(
            [=](int n) ALWAYS_INLINE { return Kind<T>::floats(values + key * stride + n * LANES); },
            [=](int m) ALWAYS_INLINE { return all(weights[m * SPAN + key]); }, found);
    unrolled<M * N>([&](auto i) ALWAYS_INLINE { store(sums + i / N * width + i % N * LANES, found[i]); });
}

// Keys and values of a key head, up to SPAN of them, and the mask of the first row for them.
template <class T> struct Span {
    const T *keys, *values, *mask;
    int64_t k_row, v_row, mask_row, count, width;
};

// What is known of a row after some keys: the highest score, and the sums of weights and of weighted values, with the
// weight e^(score - highest).
struct Found {
    float highest, divisor;
};

// M rows [M, width], and what is found of them with the keys so far, with the keys of one more span.
template <class T, int M> void add_span(const Span<T>& span, const float* queries, Found* rows, float* sums) {
    typedef Kind<T> K;
    const int64_t count = span.count, width = span.width;
    float scores[M * SPAN];
    int64_t key = 0;
    for (; key + KEYS <= count; key += KEYS)
        score_keys<T, M, KEYS>(queries, span.keys + key * span.k_row, span.k_row, width, scores + key);
    for (; key < count; key++) score_keys<T, M, 1>(queries, span.keys + key * span.k_row, span.k_row, width, scores + key);
    const int64_t filled = (count + LANES - 1) / LANES * LANES;
    for (int m = 0; m < M; m++, sums += width) {
        float* score = scores + m * SPAN;
        for (int64_t i = count; i < filled; i++) score[i] = -__builtin_inff();
        if (span.mask) {
            const T* mask = span.mask + m * span.mask_row;
            int64_t i = 0;
            for (; i + LANES <= count; i += LANES) store(score + i, load<Floats>(score + i) + K::floats(mask + i));
            for (; i < count; i++) score[i] += K::wide(mask[i]);
        }
        Floats highest = load<Floats>(score);
        for (int64_t i = LANES; i < filled; i += LANES) highest = larger(highest, load<Floats>(score + i));
        const float now = greatest(highest), before = rows[m].highest, next = now > before ? now : before;
        if (next == -__builtin_inff()) {  // nothing was visible so far
            for (int64_t i = 0; i < filled; i++) score[i] = 0.0f;
            continue;
        }
        rows[m].highest = next;
        Floats divisor = {};
        for (int64_t i = 0; i < filled; i += LANES) {
            const Floats weight = exponential(load<Floats>(score + i) - next);
            store(score + i, weight);
            divisor += weight;
        }
        if (before != next) {
            const float factor = exponential(all(before - next))[0];
            rows[m].divisor *= factor;
            for (int64_t i = 0; i < width; i += LANES) store(sums + i, load<Floats>(sums + i) * factor);
        }
        rows[m].divisor += total(divisor);
    }
    sums -= M * width;
    int64_t i = 0;
    for (; i + VALUES * LANES <= width; i += VALUES * LANES)
        add_values<T, M, VALUES>(scores, span.values + i, span.v_row, count, width, sums + i);
    for (; i < width; i += LANES) add_values<T, M, 1>(scores, span.values + i, span.v_row, count, width, sums + i);
}

// Rows `first` to `first + rows` of one key head: row r is query r % count of the head's query head r / count.
template <class T> void attend(const Attention& a, int64_t batch, int64_t kv_head, int64_t first, int64_t rows) {
    typedef Kind<T> K;
    const int64_t width = a.width, group = a.heads / a.kv_heads, own = a.count(batch), seen = a.seen(batch);
    float queries[MANY * WIDEST], sums[MANY * WIDEST];
    Found found[MANY];
    for (int64_t m = 0; m < rows; m++) {
        const int64_t head = kv_head * group + (first + m) / own, row = (first + m) % own;
        const T* query = static_cast<const T*>(a.q) + a.before(batch) + head * a.q_head + row * a.q_row;
        for (int64_t i = 0; i < width; i += LANES) {
            store(queries + m * width + i, K::floats(query + i) * float(a.scale));
            store(sums + m * width + i, Floats{});
        }
        found[m] = {-__builtin_inff(), 0.0f};
    }
    const T* keys = static_cast<const T*>(a.k) + batch * a.k_batch + kv_head * a.k_head;
    const T* values = static_cast<const T*>(a.v) + batch * a.v_batch + kv_head * a.v_head;
    const T* mask = a.mask ? static_cast<const T*>(a.mask) + batch * a.mask_batch + first * a.mask_row : nullptr;
    for (int64_t start = 0; start < seen; start += SPAN) {
        Span<T> span{keys + start * a.k_row, values + start * a.v_row, mask ? mask + start : nullptr, a.k_row, a.v_row,
                     a.mask_row, seen - start < SPAN ? seen - start : SPAN, width};
        for (int64_t m = 0; m < rows; m += TOGETHER) {
            const float* some = queries + m * width;
            switch (rows - m) {
                case 1: add_span<T, 1>(span, some, found + m, sums + m * width); break;
                case 2: add_span<T, 2>(span, some, found + m, sums + m * width); break;
                case 3: add_span<T, 3>(span, some, found + m, sums + m * width); break;
                default: add_span<T, TOGETHER>(span, some, found + m, sums + m * width);
            }
            if (span.mask) span.mask += TOGETHER * a.mask_row;
        }
    }
    for (int64_t m = 0; m < rows; m++) {
        const int64_t head = kv_head * group + (first + m) / own, row = (first + m) % own;
        T* out = static_cast<T*>(a.out) + ((a.first(batch) + row) * a.heads + head) * width;
        const float factor = 1.0f / found[m].divisor;
        for (int64_t i = 0; i < width; i += LANES) K::put(out + i, load<Floats>(sums + m * width + i) * factor);
    }
}

// What one thread computes: a share of the products of rows and keys, as runs of up to MANY rows of one key head.
template <class T> void attention_part(const Attention& a) {
    const int64_t thread = a.openmp->thread(), threads = a.openmp->threads(), group = a.heads / a.kv_heads;
    int64_t all = 0;
    for (int64_t batch = 0; batch < a.batch; batch++) all += a.heads * a.count(batch) * a.seen(batch);
    const int64_t begin = all * thread / threads, end = all * (thread + 1) / threads;
    int64_t passed = 0;
    for (int64_t batch = 0; batch < a.batch; batch++) {
        const int64_t each = group * a.count(batch), rows = a.kv_heads * each, seen = a.seen(batch);
        // A row is of the thread in whose share its first product is.
        const auto reached = [&](int64_t products) {
            const int64_t row = (products - passed + seen - 1) / seen;
            return products <= passed ? 0 : row < rows ? row : rows;
        };
        const int64_t last = reached(end);
        for (int64_t row = reached(begin); row < last;) {
            const int64_t kv_head = row / each, first = row % each;
            const int64_t left = last - row < each - first ? last - row : each - first;
            const int64_t some = left < MANY ? left : MANY;
            attend<T>(a, batch, kv_head, first, some);
            row += some;
        }
        passed += rows * seen;
    }
}

void run_attention(void* given) {
    const Attention& a = *static_cast<const Attention*>(given);
    if (a.narrow)
        attention_part<bfloat16>(a);
    else
        attention_part<float>(a);
}

}  // namespace

// The width is a multiple of 16 up to 512.
extern "C" void draftwood_attention(const Attention* a) { a->openmp->parallel(run_attention, const_cast<Attention*>(a), 0, 0); }
