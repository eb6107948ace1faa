// Rows of attention in bfloat16 by AMX, which multiplies whole tiles.
//
// Scores and weights are float32; for the product with the values the weights are rounded to bfloat16. A tile of scores
// has 16 keys, as they are cached, and the queries of 16 rows; one of sums 16 rows and 16 elements of the values, which
// are rearranged in pairs of keys, once for all rows. A row is computed in one order, whatever the rows beside it.

#pragma once

#include "attention_rows.h"
#include "tiles.h"

#if defined(HAS_TILES)

namespace {

constexpr int64_t MANY_BY_TILES = 64;  // rows that share the rearranged values
constexpr int64_t TILE = SIDE * PAIRS;  // words

// What a thread has rearranged, and what it has found so far.
struct TiledRows {
    int64_t width;
    std::vector<uint32_t> queries;            // tiles of 16 rows: [rows / SIDE, width / DEPTH, PAIRS, SIDE]
    std::vector<uint32_t> values;             // of a span, in tiles: [width / SIDE, SPAN / 2, SIDE]
    std::vector<bfloat16> keys;               // the last ones of a span that fill no tile, filled up: [SIDE, width]
    std::vector<float> sums;                  // [rows, width]
    Found found[MANY_BY_TILES];
    alignas(LINE) float scores[SIDE * SPAN];  // of 16 rows
    alignas(LINE) bfloat16 weights[SIDE * SPAN];
};

// Two rows of 32 elements, as 32 pairs: those of the first 16 elements, then the others.
inline void pair_rows(__m512i one, __m512i other, uint32_t* first, uint32_t* second) {
    const __m512i index = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,  //
                                           39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    _mm512_storeu_si512(first, _mm512_permutex2var_epi16(one, index, other));
    const __m512i later = _mm512_add_epi16(index, _mm512_set1_epi16(16));
    _mm512_storeu_si512(second, _mm512_permutex2var_epi16(one, later, other));
}

inline void begin_rows(TiledRows& t, const Attention& a, int64_t sequence, int64_t kv_head, int64_t first,
                       int64_t rows) {
    const int64_t filled = (rows + SIDE - 1) / SIDE * SIDE, depths = a.width / DEPTH;
    t.width = a.width;
    t.queries.resize(MANY_BY_TILES * depths * PAIRS);
    t.values.resize(a.width / SIDE * SPAN / 2 * SIDE);
    t.keys.resize(SIDE * a.width);
    t.sums.resize(MANY_BY_TILES * a.width);
    std::memset(t.sums.data(), 0, filled * a.width * sizeof(float));
    uint32_t* to = t.queries.data();
    for (int64_t group = 0; group < rows; group += SIDE)
        for (int64_t depth = 0; depth < depths; depth++, to += TILE) {
            Floats tile[SIDE] = {};
            for (int64_t row = 0; row < SIDE && group + row < rows; row++)
                tile[row] = load<Floats>(a.query<bfloat16>(sequence, kv_head, first + group + row) + depth * DEPTH);
            transpose(tile);
            for (int64_t pair = 0; pair < PAIRS; pair++) store(to + pair * SIDE, tile[pair]);
        }
    for (int64_t row = 0; row < rows; row++)
        t.found[row] = {-__builtin_inff(), 0.0f, a.seen_by(sequence, first + row)};
}

// Rearranges what tiles cannot read as it is cached. Meanwhile the span's keys and the next values are fetched.
inline void begin_span(TiledRows& t, const Span<bfloat16>& span) {
    const int64_t count = span.count, width = t.width, whole = count / SIDE * SIDE;
    if (whole < count) std::memset(t.keys.data(), 0, SIDE * width * sizeof(bfloat16));
    for (int64_t key = whole; key < count; key++)
        std::memcpy(&t.keys[(key - whole) * width], span.keys + key * span.k_row, width * sizeof(bfloat16));
    const auto value = [&](int64_t key, int64_t i) ALWAYS_INLINE {
        return key < count ? load<__m512i>(span.values + key * span.v_row + i) : __m512i{};
    };
    uint32_t* const values = t.values.data();
    for (int64_t key = 0; key < (count + DEPTH - 1) / DEPTH * DEPTH; key += 2) {
        for (int64_t later = key; later < key + 2; later++) {
            if (later < count) fetch(span.keys + later * span.k_row, width);
            if (later + SPAN < span.left) fetch(span.values + (later + SPAN) * span.v_row, width);
        }
        for (int64_t i = 0; i < width; i += DEPTH) {
            uint32_t* to = values + i * SPAN / 2 + key / 2 * SIDE;
            pair_rows(value(key, i), value(key + 1, i), to, to + SPAN / 2 * SIDE);
        }
    }
}

// Scores [SIDE, SPAN] of the 16 rows of a group.
inline void score_by_tiles(TiledRows& t, const Span<bfloat16>& span, int64_t group, float scale) {
    const uint32_t* queries = &t.queries[group * (t.width / DEPTH) * TILE];
    alignas(LINE) float found[TILE];
    for (int64_t key = 0; key < span.count; key += SIDE) {
        const bool last = span.count - key < SIDE;
        const bfloat16* keys = last ? t.keys.data() : span.keys + key * span.k_row;
        const int64_t apart = 2 * (last ? t.width : span.k_row);
        memory_used();
        _tile_zero(0);
        for (int64_t i = 0; i < t.width; i += DEPTH) {
            _tile_loadd(4, keys + i, apart);
            _tile_loadd(6, queries + i / DEPTH * TILE, LINE);
            _tile_dpbf16ps(0, 4, 6);
        }
        store_tile(0, found, SIDE);
        Floats tile[SIDE];
        for (int64_t i = 0; i < SIDE; i++) tile[i] = load<Floats>(found + i * SIDE);
        transpose(tile);
        for (int64_t row = 0; row < SIDE; row++) store(t.scores + row * SPAN + key, tile[row] * scale);
    }
}

// Adds the weighted values to the sums of the 16 rows of a group, 32 elements at a time.
inline void add_by_tiles(TiledRows& t, int64_t count, int64_t group) {
    const int64_t apart = 4 * t.width;
    float* sums = &t.sums[group * SIDE * t.width];
    memory_used();
    for (int64_t i = 0; i < t.width; i += 2 * SIDE) {
        const uint32_t *one = &t.values[i * SPAN / 2], *other = one + SPAN / 2 * SIDE;
        _tile_loadd(0, sums + i, apart);
        _tile_loadd(1, sums + i + SIDE, apart);
        for (int64_t key = 0; key < count; key += DEPTH) {
            _tile_loadd(4, t.weights + key, 2 * SPAN);
            _tile_loadd(6, one + key / 2 * SIDE, LINE);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, other + key / 2 * SIDE, LINE);
            _tile_dpbf16ps(1, 4, 7);
        }
        _tile_stored(0, sums + i, apart);
        _tile_stored(1, sums + i + SIDE, apart);
    }
    memory_used();
}

// Rows `first` to `first + rows` of one key head, at most MANY_BY_TILES. The width is a multiple of DEPTH.
void attend_by_tiles(const Attention& a, int64_t sequence, int64_t kv_head, int64_t first, int64_t rows) {
    static thread_local TiledRows t;
    begin_rows(t, a, sequence, kv_head, first, rows);
    const int64_t seen = seen_by_any(t.found, rows);
    for (int64_t start = 0; start < seen; start += SPAN) {
        const Span<bfloat16> span = a.span<bfloat16>(sequence, kv_head, first, start, seen);
        begin_span(t, span);
        for (int64_t begin = 0; begin < rows; begin += SIDE) {
            score_by_tiles(t, span, begin / SIDE, float(a.scale));
            for (int64_t row = 0; row < SIDE && begin + row < rows; row++) {
                const int64_t m = begin + row;
                float* score = t.scores + row * SPAN;
                weigh(score, span, span.mask ? span.mask + m * span.mask_row : nullptr, t.found[m],
                      &t.sums[m * t.width]);
                bfloat16* weight = t.weights + row * SPAN;
                for (int64_t i = 0; i < SPAN; i += DEPTH) {
                    const auto part = [&](int64_t i) { return i < span.count ? load<__m512>(score + i) : __m512{}; };
                    store(weight + i, _mm512_cvtne2ps_pbh(part(i + SIDE), part(i)));
                }
            }
            add_by_tiles(t, span.count, begin / SIDE);
        }
    }
    for (int64_t m = 0; m < rows; m++)
        put_row(t.found[m], &t.sums[m * t.width], t.width, a.output<bfloat16>(sequence, kv_head, first + m));
}

}  // namespace

#endif
