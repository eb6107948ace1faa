// What AdjacencyTables.describe and AdjacencyTables.descend answer: the codes of given successors; and successors of
// tokens, of these successors, and so on, as far as they are likely enough. The Python twin is a round of Expand for
// each level.

#pragma once

#include "index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace {

constexpr float NOTHING = -std::numeric_limits<float>::infinity();

// A live table: live.py.
struct Live {
    const Index* index;
    const int32_t* tokens;  // [rows, width], likeliest first, -1 where there is no further one
    const float* logq;
    int64_t width;
    float least_logq;
};

// A prepared table: table.py.
struct Prepared {
    const void* keys;  // ascending, uint32 or uint64
    const int64_t* starts;
    const uint8_t* lengths;
    const void* tokens;  // uint16 or uint32
    const uint8_t* codes;
    const float* logq;  // of each code
    int64_t count, vocab, wide_keys, wide_tokens;

    template <class Key>
    int64_t found(uint64_t wanted) const {
        const Key* first = static_cast<const Key*>(keys);
        const Key* place = std::lower_bound(first, first + count, Key(wanted));
        return place < first + count && *place == Key(wanted) ? place - first : -1;
    }

    // The row of a pair, or else of its token; -1 if there is none.
    int64_t row(int64_t before, int64_t token) const {
        const uint64_t single = uint64_t(vocab) * vocab + token;
        const uint64_t pair = before < 0 ? single : uint64_t(before) * vocab + token;
        const int64_t own = wide_keys ? found<uint64_t>(pair) : found<uint32_t>(pair);
        if (own >= 0 || pair == single) return own;
        return wide_keys ? found<uint64_t>(single) : found<uint32_t>(single);
    }

    int32_t token(int64_t place) const {
        return wide_tokens ? int32_t(static_cast<const uint32_t*>(tokens)[place])
                           : int32_t(static_cast<const uint16_t*>(tokens)[place]);
    }
};

// Ranked successors of one token.
struct Ranked {
    std::vector<int32_t> tokens;
    std::vector<float> logq;

    explicit Ranked(int64_t width) : tokens(width), logq(width) {}

    void set(const int32_t* some, const float* logs) {
        std::copy_n(some, tokens.size(), tokens.begin());
        std::copy_n(logs, logq.size(), logq.begin());
    }

    void clear() {
        std::fill(tokens.begin(), tokens.end(), -1);
        std::fill(logq.begin(), logq.end(), NOTHING);
    }
};

// How a ranked token's code follows from its rank and score: Coding of protocols/drafter.py.
struct Coding {
    const int64_t* first;  // by rank
    const double* edges;   // of the scores' logarithms, ascending
    int64_t count, stride;

    int64_t code(int64_t rank, float logq) const {
        const int64_t bin = std::upper_bound(edges, edges + count, double(logq)) - edges;
        return first[rank] + stride * bin;
    }
};

constexpr int64_t NOT_LISTED = 1, SILENT = -1;

struct Description {
    const Live* live;
    const Prepared* prepared;
    const Coding* coding;
    int64_t successors, count;
    // Of each node: its parent, the token before that and its own token, and the node's token; and its code.
    const int64_t *parents, *before, *above, *tokens;
    int64_t* codes;
};

struct Descent {
    const Live* live;
    const Prepared* prepared;  // null: there is none
    const Coding* coding;
    const double* chances;  // of acceptance, [kinds, codes]; kind 0: no other source offers tokens there
    double floor, least;    // of a node's path probability, and of the sum of a level's
    int64_t codes, successors, deepest, room, first;
    // The nodes to begin with; and the children that they have, by ascending parent.
    int64_t count, children;
    const int64_t *nodes, *before, *tokens, *depths, *kinds, *child_parents, *child_tokens;
    const double* paths;
    // Found nodes, and the nodes that have an answer.
    int64_t *new_parents, *new_tokens, *new_codes, *answered;
    double *new_chances, *new_paths;
    int64_t answers;
};

// A node of the level whose successors are looked up.
struct Node {
    int64_t id, before, token, depth, kind;
    double path;
};

struct Found {
    int64_t parent, token, code, depth, before;
    double chance, path;
};

class Finder {
  public:
    Finder(const Live& live, const Prepared* prepared)
        : live(live), prepared(prepared), row(live.width), other(live.width) {}

    // The successors of a token, as answer.py has them.
    const Ranked& successors(int64_t before, int64_t token) {
        int32_t own = live.index->own(before, token);
        const bool certain = own != NO_ROW && live.index->bigram;
        if (own == NO_ROW) own = live.index->last(token);
        if (own == NO_ROW) {
            row.clear();
        } else {
            row.set(live.tokens + own * live.width, live.logq + own * live.width);
        }
        if (prepared && !certain) average(prepared->row(before, token));
        return row;
    }

  private:
    const Live& live;
    const Prepared* prepared;
    Ranked row, other;
    std::vector<float> total;
    std::vector<int32_t> every;
    std::vector<int> order;

    // The mean of the row and of a prepared one, as mean.py has it.
    void average(int64_t place) {
        const int64_t width = live.width;
        other.clear();
        if (place >= 0) {
            const int64_t count = std::min<int64_t>(width, prepared->lengths[place]), start = prepared->starts[place];
            for (int64_t i = 0; i < count; i++) {
                other.tokens[i] = prepared->token(start + i);
                other.logq[i] = prepared->logq[prepared->codes[start + i]];
            }
        }
        if (row.tokens[0] < 0) {
            std::swap(row, other);
        } else if (other.tokens[0] >= 0) {
            merge();
        }
        for (int64_t i = 0; i < width; i++) {
            if (!(row.logq[i] < live.least_logq)) continue;
            row.tokens[i] = -1;
            row.logq[i] = NOTHING;
        }
    }

    void merge() {
        const int64_t width = live.width;
        every = row.tokens;
        every.insert(every.end(), other.tokens.begin(), other.tokens.end());
        total.resize(2 * width);
        for (int64_t i = 0; i < width; i++) {
            total[i] = 0.5f * std::exp(row.logq[i]);
            total[width + i] = 0.5f * std::exp(other.logq[i]);
        }
        for (int64_t i = 0; i < width; i++) {
            for (int64_t j = width; j < 2 * width; j++) {
                if (every[i] != every[j]) continue;
                total[i] += total[j];
                total[j] = 0;
            }
        }
        order.resize(2 * width);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return total[a] > total[b]; });
        for (int64_t i = 0; i < width; i++) {
            const float sum = total[order[i]];
            row.tokens[i] = sum > 0 ? every[order[i]] : -1;
            row.logq[i] = sum > 0 ? std::log(sum) : NOTHING;
        }
    }
};

// The code of a token at a rank; SILENT if there is none.
inline int64_t code_at(const Coding& coding, const Ranked& ranked, int64_t rank) {
    const bool known = rank < int64_t(ranked.tokens.size()) && ranked.tokens[rank] >= 0;
    if (!known || !std::isfinite(ranked.logq[rank])) return SILENT;
    return coding.code(rank, ranked.logq[rank]);
}

// Fills in the codes of some nodes. Those of one parent follow one another.
inline void describe(Description& asked) {
    Finder finder(*asked.live, asked.prepared);
    const Ranked* ranked = nullptr;
    bool any = false;
    for (int64_t i = 0; i < asked.count; i++) {
        if (!ranked || asked.parents[i] != asked.parents[i - 1]) {
            ranked = &finder.successors(asked.before[i], asked.above[i]);
            any = false;
            for (int64_t rank = 0; rank < asked.successors; rank++) {
                any = any || code_at(*asked.coding, *ranked, rank) != SILENT;
            }
        }
        asked.codes[i] = any ? NOT_LISTED : SILENT;
        for (int64_t rank = 0; rank < asked.successors; rank++) {
            const int64_t code = code_at(*asked.coding, *ranked, rank);
            if (code != SILENT && ranked->tokens[rank] == asked.tokens[i]) asked.codes[i] = code;
        }
    }
}

inline bool has_child(const Descent& asked, int64_t parent, int64_t token) {
    const int64_t* end = asked.child_parents + asked.children;
    for (const int64_t* i = std::lower_bound(asked.child_parents, end, parent); i < end && *i == parent; i++) {
        if (asked.child_tokens[i - asked.child_parents] == token) return true;
    }
    return false;
}

// Adds the successors of a level's nodes that are likely enough.
inline void look_up(const std::vector<Node>& level, Descent& asked, Finder& finder, std::vector<Found>& found) {
    for (const Node& node : level) {
        const Ranked& ranked = finder.successors(node.before, node.token);
        const double* chances = asked.chances + node.kind * asked.codes;
        bool any = false;
        for (int64_t i = 0; i < asked.successors; i++) {
            const int64_t code = code_at(*asked.coding, ranked, i);
            if (code == SILENT) continue;
            any = true;
            const double chance = chances[code], path = node.path * chance;
            if (!(path >= asked.floor) && node.id != 0) continue;
            if (node.id < asked.first && has_child(asked, node.id, ranked.tokens[i])) continue;
            found.push_back({node.id, ranked.tokens[i], code, node.depth + 1, node.token, chance, path});
        }
        if (any) asked.answered[asked.answers++] = node.id;
    }
}

// Leaves the likeliest ones, in their order.
inline void keep_best(std::vector<Found>& found, int64_t room) {
    if (int64_t(found.size()) <= room) return;
    std::vector<int64_t> order(found.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return found[a].path > found[b].path; });
    order.resize(std::max<int64_t>(0, room));
    std::sort(order.begin(), order.end());
    std::vector<Found> kept;
    for (int64_t place : order) kept.push_back(found[place]);
    found.swap(kept);
}

// Fills in what was found, and returns its number.
inline int64_t descend(Descent& asked) {
    Finder finder(*asked.live, asked.prepared);
    std::vector<Node> level;
    std::vector<Found> found;
    for (int64_t i = 0; i < asked.count; i++) {
        level.push_back(
            {asked.nodes[i], asked.before[i], asked.tokens[i], asked.depths[i], asked.kinds[i], asked.paths[i]}
        );
    }
    int64_t total = 0;
    asked.answers = 0;
    while (true) {
        found.clear();
        look_up(level, asked, finder, found);
        keep_best(found, asked.room - total);
        level.clear();
        double sum = 0;
        for (const Found& each : found) {
            const int64_t id = asked.first + total;
            asked.new_parents[total] = each.parent;
            asked.new_tokens[total] = each.token;
            asked.new_codes[total] = each.code;
            asked.new_chances[total] = each.chance;
            asked.new_paths[total] = each.path;
            total++;
            if (each.path < asked.floor || each.depth >= asked.deepest) continue;
            level.push_back({id, each.before, each.token, each.depth, 0, each.path});
            sum += each.path;
        }
        if (level.empty() || !(sum >= asked.least)) return total;
    }
}

}  // namespace
