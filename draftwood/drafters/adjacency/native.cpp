// The library's functions: an index of rows, rows that are stored, descriptions and descents.

#include "descent.h"

#include <cmath>

extern "C" {

void* draftwood_index(int64_t most, int64_t bigram) { return new Index(most, bigram != 0); }

int64_t draftwood_index_bytes(const void* index) { return int64_t(static_cast<const Index*>(index)->bytes()); }

void draftwood_index_free(void* index) { delete static_cast<Index*>(index); }

// The row of each pair, or else the one of its token that was stored last, -1 without; and whether it is the pair's own.
void draftwood_index_find(
    const void* index, const int64_t* before, const int64_t* tokens, int64_t count, int64_t* rows, int64_t* own
) {
    const Index& known = *static_cast<const Index*>(index);
    for (int64_t i = 0; i < count; i++) {
        const int32_t row = known.own(before[i], tokens[i]);
        own[i] = row != NO_ROW;
        rows[i] = own[i] ? row : known.last(tokens[i]);
    }
}

// Stores the successors of each pair: the first `width` of `given` ranked ones that are likely enough.
struct Store {
    void* index;
    int32_t* tokens;  // of the table, [rows, width]
    float* logq;
    const int64_t *before, *own, *best;  // pairs [count], and successors [count, given]
    const float* probabilities;
    int64_t count, given, width;
    float least;
};

void draftwood_index_store(void* asked) {
    const Store& store = *static_cast<const Store*>(asked);
    Index& index = *static_cast<Index*>(store.index);
    for (int64_t i = 0; i < store.count; i++) {
        const int64_t row = index.take(store.before[i], store.own[i]);
        for (int64_t j = 0; j < store.width; j++) {
            const float p = j < store.given ? store.probabilities[i * store.given + j] : 0;
            const bool offered = p >= store.least;
            store.tokens[row * store.width + j] = offered ? int32_t(store.best[i * store.given + j]) : -1;
            store.logq[row * store.width + j] = offered ? std::log(p) : NOTHING;
        }
    }
}

void draftwood_describe(void* asked) { describe(*static_cast<Description*>(asked)); }

int64_t draftwood_descend(void* asked) { return descend(*static_cast<Descent*>(asked)); }
}
