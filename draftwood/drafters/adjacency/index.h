// The rows of a live table by their keys: pairs of tokens, or single tokens.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

constexpr int32_t NO_ROW = -1;

// Rows by key: open addressing with linear probing. Where a key leaves, those behind it move up, so that no place stays
// marked.
class Rows {
  public:
    Rows() : keys(64), rows(64, NO_ROW) {}

    int32_t get(uint64_t key) const { return rows[place(key)]; }

    void put(uint64_t key, int32_t row) {
        if (2 * (count + 1) > rows.size()) grow();
        const size_t where = place(key);
        count += rows[where] == NO_ROW;
        keys[where] = key;
        rows[where] = row;
    }

    size_t bytes() const { return keys.capacity() * sizeof(uint64_t) + rows.capacity() * sizeof(int32_t); }

    void drop(uint64_t key) {
        size_t hole = place(key);
        if (rows[hole] == NO_ROW) return;
        count--;
        for (size_t i = next(hole); rows[i] != NO_ROW; i = next(i)) {
            // What belongs behind the hole stays there.
            const size_t home = first(keys[i]);
            if (((i - home) & mask()) < ((i - hole) & mask())) continue;
            keys[hole] = keys[i];
            rows[hole] = rows[i];
            hole = i;
        }
        rows[hole] = NO_ROW;
    }

  private:
    std::vector<uint64_t> keys;
    std::vector<int32_t> rows;
    size_t count = 0;

    size_t mask() const { return rows.size() - 1; }
    size_t next(size_t i) const { return (i + 1) & mask(); }
    size_t first(uint64_t key) const { return size_t(key * 0x9E3779B97F4A7C15u >> 32) & mask(); }

    // Where a key is, or would be.
    size_t place(uint64_t key) const {
        size_t i = first(key);
        while (rows[i] != NO_ROW && keys[i] != key) i = next(i);
        return i;
    }

    void grow() {
        std::vector<uint64_t> old_keys(2 * keys.size());
        std::vector<int32_t> old_rows(2 * rows.size(), NO_ROW);
        std::swap(keys, old_keys);
        std::swap(rows, old_rows);
        for (size_t i = 0; i < old_rows.size(); i++) {
            if (old_rows[i] == NO_ROW) continue;
            const size_t where = place(old_keys[i]);
            keys[where] = old_keys[i];
            rows[where] = old_rows[i];
        }
    }
};

// The keys of a table's rows, which form a ring. The Python twin is PlainRows of rows.py.
class Index {
  public:
    Index(int64_t most, bool bigram) : bigram(bigram), most(most) {}

    const bool bigram;

    // The row of a key, which gets the oldest one if it has none.
    int32_t take(int64_t before, int64_t token) {
        const uint64_t key = key_of(before, token);
        int32_t row = rows.get(key);
        if (row == NO_ROW) {
            row = int32_t(next);
            if (next < int64_t(keys.size())) {
                const uint64_t oldest = keys[next];
                rows.drop(oldest);
                if (latest.get(oldest & LOW) == row) latest.drop(oldest & LOW);
                keys[next] = key;
            } else {
                keys.push_back(key);
            }
            rows.put(key, row);
            next = (next + 1) % most;
        }
        if (bigram) latest.put(uint64_t(token), row);
        return row;
    }

    int32_t own(int64_t before, int64_t token) const { return rows.get(key_of(before, token)); }

    size_t bytes() const { return rows.bytes() + latest.bytes() + keys.capacity() * sizeof(uint64_t); }

    // The row that was stored last for a token, whatever was before it.
    int32_t last(int64_t token) const { return (bigram ? latest : rows).get(uint64_t(token)); }

  private:
    static constexpr uint64_t LOW = 0xFFFFFFFFu;

    const int64_t most;
    Rows rows, latest;
    std::vector<uint64_t> keys;
    int64_t next = 0;

    uint64_t key_of(int64_t before, int64_t token) const {
        return bigram ? uint64_t(before) << 32 | uint64_t(token) : uint64_t(token);
    }
};

}  // namespace
