// Products of few rows of bfloat16 with a weight matrix by AMX, which multiplies whole tiles.
//
// Vectors take as long for 16 rows as for reading the weight twice; tiles take hardly longer than for one. A tile of the
// weight is 16 of its rows by 32 elements, read as they are stored. x is rearranged: a tile of it has the elements of up
// to 16 rows side by side, in pairs. An element of y is summed in one order, whatever the number of rows.

#pragma once

#include "vectors.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__) && defined(__AVX512BF16__) && defined(__linux__)
#define HAS_TILES 1

#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

namespace {

constexpr int64_t SIDE = 16;   // rows of w, and most rows of x, of a tile
constexpr int64_t DEPTH = 32;  // elements of each, which are
constexpr int64_t PAIRS = 16;  // words
constexpr int64_t AT_ONCE = 256;  // rows of x that stay in the second cache for all rows of w

// Whether the system lets this process use tiles; it has to be asked once.
inline bool tiles_allowed() {
    static const bool allowed = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0;
    return allowed;
}

// Compilers do not know what memory the instructions for tiles read and write.
inline void memory_used() { __asm__ volatile("" ::: "memory"); }

struct TileShapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};  // of a row
    uint8_t rows[16] = {};
};

// Tiles 0 to 3 are sums, 4 and 5 first factors (of products, parts of w), 6 and 7 second ones, in pairs.
inline void shape_tiles(int64_t outputs, int64_t columns) {
    TileShapes shapes;
    for (int i = 0; i < 8; i++) {
        shapes.rows[i] = i < 6 ? outputs : PAIRS;
        shapes.bytes[i] = i == 4 || i == 5 ? 2 * DEPTH : 4 * columns;
    }
    memory_used();
    _tile_loadconfig(&shapes);
}

// x in pairs of elements, as tiles of `columns` rows beside one another: [groups, depths, PAIRS, columns].
struct PairedRows {
    const uint32_t* pairs;
    int64_t groups, depths, columns;

    const uint32_t* tile(int64_t group, int64_t depth) const {
        return pairs + (group * depths + depth) * PAIRS * columns;
    }
};

inline PairedRows paired(const bfloat16* x, int64_t rows, int64_t n) {
    // Tiles of equal numbers of rows: the last one may have any others behind its own.
    const int64_t groups = (rows + SIDE - 1) / SIDE, columns = (rows + groups - 1) / groups;
    const int64_t depths = (n + DEPTH - 1) / DEPTH;
    if (rows == 1 && n % DEPTH == 0) return {reinterpret_cast<const uint32_t*>(x), 1, depths, 1};
    static thread_local std::vector<uint32_t> space;
    const size_t size = groups * depths * PAIRS * columns + PAIRS;  // stores are of whole vectors
    if (space.size() < size) space.resize(size);
    uint32_t* to = space.data();
    for (int64_t group = 0; group < groups; group++) {
        const int64_t begin = group * columns, count = rows - begin < columns ? rows - begin : columns;
        for (int64_t depth = 0; depth < depths; depth++) {
            const int64_t left = n - depth * DEPTH;
            const __mmask32 there = left < DEPTH ? (1u << left) - 1 : ~0u;
            Floats tile[SIDE];
            for (int64_t row = 0; row < SIDE; row++) {
                const bfloat16* from = x + (begin + (row < count ? row : 0)) * n + depth * DEPTH;
                tile[row] = (Floats)_mm512_maskz_loadu_epi16(there, from);
            }
            transpose(tile);
            for (int64_t pair = 0; pair < PAIRS; pair++, to += columns) store(to, tile[pair]);
        }
    }
    return {space.data(), groups, depths, columns};
}

// y of `count` rows of w for `rows` rows of x; the sums are [count, columns], with a vector behind them.
inline void put_tile(const float* sums, int64_t columns, int64_t count, const bfloat16* bias, bfloat16* y, int64_t rows,
                     int64_t outputs) {
    typedef Kind<bfloat16> K;
    if (count < SIDE) {
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < count; i++)
                y[row * outputs + i] = K::narrow(sums[i * columns + row] + (bias ? K::wide(bias[i]) : 0.0f));
        return;
    }
    const Floats added = bias ? K::floats(bias) : Floats{};
    if (columns == 1) {
        K::put(y, load<Floats>(sums) + added);
        return;
    }
    Floats tile[SIDE];
    for (int64_t i = 0; i < SIDE; i++) tile[i] = load<Floats>(sums + i * columns);
    transpose(tile);
    for (int64_t row = 0; row < rows; row++) K::put(y + row * outputs, tile[row] + added);
}

// The sums of PARTS tiles of rows of w, which begin at w, with GROUPS tiles of rows of x, in tiles part + PARTS * group.
// Meanwhile lines come from memory from `ahead` on, as many as are read here; none if that is null.
template <int PARTS, int GROUPS>
inline void multiply_tiles(const bfloat16* w, int64_t n, int64_t outputs, const PairedRows& x, int64_t group,
                           const bfloat16* ahead) {
    const int64_t wide = 4 * x.columns;
    alignas(LINE) bfloat16 rest[PARTS][SIDE * DEPTH];
    _tile_zero(0);
    if (PARTS * GROUPS > 1) _tile_zero(1);
    if (PARTS * GROUPS > 2) _tile_zero(2);
    if (PARTS * GROUPS > 2) _tile_zero(3);
    for (int64_t depth = 0; depth < x.depths; depth++) {
        const bfloat16 *one = w + depth * DEPTH, *other = one + SIDE * n;
        int64_t apart = 2 * n;
        const int64_t left = n - depth * DEPTH;
        if (left < DEPTH) {  // filled up with zeros
            std::memset(rest, 0, sizeof rest);
            for (int64_t row = 0; row < outputs; row++) {
                std::memcpy(rest[0] + row * DEPTH, one + row * n, 2 * left);
                if (PARTS > 1) std::memcpy(rest[PARTS - 1] + row * DEPTH, other + row * n, 2 * left);
            }
            one = rest[0], other = rest[PARTS - 1], apart = 2 * DEPTH;
            memory_used();
        }
        const auto fetch = [&]() ALWAYS_INLINE {
            if (ahead)
                for (int64_t line = 0; line < PARTS * SIDE / 4; line++, ahead += DEPTH) __builtin_prefetch(ahead, 0, 2);
        };
        _tile_loadd(4, one, apart);
        fetch();
        if (PARTS > 1) _tile_loadd(5, other, apart);
        fetch();
        _tile_loadd(6, x.tile(group, depth), wide);
        fetch();
        _tile_dpbf16ps(0, 4, 6);
        if (PARTS > 1) _tile_dpbf16ps(1, 5, 6);
        fetch();
        if (GROUPS > 1) {
            _tile_loadd(7, x.tile(group + 1, depth), wide);
            if (PARTS > 1) {
                _tile_dpbf16ps(2, 4, 7);
                _tile_dpbf16ps(3, 5, 7);
            } else {
                _tile_dpbf16ps(1, 4, 7);
            }
        }
    }
}

inline void store_tile(int tile, float* sums, int64_t columns) {
    switch (tile) {
        case 0: _tile_stored(0, sums, 4 * columns); break;
        case 1: _tile_stored(1, sums, 4 * columns); break;
        case 2: _tile_stored(2, sums, 4 * columns); break;
        default: _tile_stored(3, sums, 4 * columns);
    }
    memory_used();
}

struct TiledWeight {
    const bfloat16 *w, *bias;  // [outputs, n]; [outputs] or null
    int64_t outputs, n;
};

struct TiledProduct : TiledWeight {
    PairedRows x;
    bfloat16* y;
    int64_t rows;

    // PARTS tiles of rows of w, each of `count`, from o on, with all rows of x, two tiles of them at a time.
    template <int PARTS> void block(int64_t o, int64_t count, const bfloat16* ahead) const {
        for (int64_t group = 0; group < x.groups; group += 2, ahead = nullptr)
            if (group + 1 < x.groups)
                some<PARTS, 2>(o, count, group, ahead);
            else
                some<PARTS, 1>(o, count, group, ahead);
    }

    template <int PARTS, int GROUPS>
    void some(int64_t o, int64_t count, int64_t group, const bfloat16* ahead) const {
        alignas(LINE) float sums[SIDE * SIDE + SIDE];
        multiply_tiles<PARTS, GROUPS>(w + o * n, n, count, x, group, ahead);
        for (int tile = 0; tile < PARTS * GROUPS; tile++) {
            store_tile(tile, sums, x.columns);
            const int64_t from = o + tile % PARTS * SIDE, begin = (group + tile / PARTS) * x.columns;
            const int64_t own = rows - begin < x.columns ? rows - begin : x.columns;
            put_tile(sums, x.columns, count, bias ? bias + from : nullptr, y + begin * outputs + from, own, outputs);
        }
    }

    // Rows first to end of w.
    void part(int64_t first, int64_t end) const {
        constexpr int64_t BOTH = 2 * SIDE;
        int64_t o = first;
        shape_tiles(SIDE, x.columns);
        for (; o + BOTH <= end; o += BOTH)
            // With one tile of x, the processor's own prefetches are enough, and others in their way.
            block<2>(o, SIDE, x.groups > 1 && o + 2 * BOTH <= end ? w + (o + BOTH) * n : nullptr);
        for (; o < end; o += SIDE) {
            const int64_t count = end - o < SIDE ? end - o : SIDE;
            if (count < SIDE) shape_tiles(count, x.columns);
            block<1>(o, count, nullptr);
        }
        _tile_release();
    }
};

// Rows first to end of w with all rows of x.
inline void tiled(const TiledWeight& weight, int64_t first, int64_t end, const bfloat16* x, bfloat16* y, int64_t rows) {
    if (first == end) return;
    for (int64_t done = 0; done < rows; done += AT_ONCE) {
        const int64_t some = rows - done < AT_ONCE ? rows - done : AT_ONCE;
        const PairedRows ready = paired(x + done * weight.n, some, weight.n);
        memory_used();
        TiledProduct{weight, ready, y + done * weight.outputs, some}.part(first, end);
    }
}

}  // namespace

#endif
