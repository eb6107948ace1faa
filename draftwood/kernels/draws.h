// The token that a row of logits and a request's random numbers give: temperature, top-k, top-p, min-p, Gumbel-max;
// and the outputs of a draft model with the largest keys of the same random numbers.
//
// Numbers are those of numpy.random.Philox: Philox4x64-10 (Salmon et al. 2011), block 1 + token / 4 of a token's
// position. Its word x gives the uniform variate u = (x / 2^12 + 1/2) / 2^52 and the exponential one E = -log u. As
// E >= 1 - u, a token of weight p cannot be drawn if p / (1 - u) is not above the largest p / E so far, so that few
// logarithms are taken.

#pragma once

#include "vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace {

constexpr int64_t CHUNK = 64;      // scores that share a maximum, or are weighed together
constexpr int64_t STRIP = CHUNK * LANES;
constexpr int AHEAD = 4;           // registers of maxima, so that none waits for the one before
constexpr int64_t TOKENS = 4;      // tokens that share a block of random numbers
constexpr int64_t STRETCH = 4096;  // weights that are added in float32
constexpr float INFINITE = std::numeric_limits<float>::infinity();

struct Draw {
    const void* logits;
    int64_t vocab;
    double temperature;
    int64_t top_k;  // 0: all
    double top_p;   // 1: all
    double min_p;   // 0: all
    uint64_t seed, position;
    int64_t narrow;  // bfloat16, else float32
};

struct Random {
    uint64_t words[TOKENS];
};

inline Random philox(uint64_t block, const Draw& draw) {
    uint64_t a = block, b = 0, c = draw.position, d = 0, low_key = draw.seed, high_key = 0;
    for (int round = 0; round < 10; round++) {
        const unsigned __int128 first = (unsigned __int128)0xD2E7470EE14C6C93u * a;
        const unsigned __int128 second = (unsigned __int128)0xCA5A826395121157u * c;
        a = uint64_t(second >> 64) ^ b ^ low_key;
        b = uint64_t(second);
        c = uint64_t(first >> 64) ^ d ^ high_key;
        d = uint64_t(first);
        low_key += 0x9E3779B97F4A7C15u;
        high_key += 0xBB67AE8584CAA73Bu;
    }
    return {{a, b, c, d}};
}

inline double uniform(uint64_t word) { return (double(word >> 12) + 0.5) * 0x1p-52; }

// The largest p / E so far.
struct Best {
    int64_t token = -1;
    double key = 0;

    void offer(int64_t candidate, double p, double u) {
        if (!(p > key * (1 - u))) return;
        const double found = p / -std::log(u);
        if (found > key) {
            key = found;
            token = candidate;
        }
    }
};

struct Scored {
    float score;
    int64_t token;
};

// Logits over the temperature, and what is added to them, if anything.
template <class T>
inline void scale(const T* logits, int64_t vocab, float temperature, const float* added, float* to) {
    int64_t i = 0;
    for (; i + LANES <= vocab; i += LANES) {
        Floats scores = Kind<T>::floats(logits + i) / temperature;
        if (added) scores += load<Floats>(added + i);
        store(to + i, scores);
    }
    for (; i < vocab; i++) to[i] = Kind<T>::wide(logits[i]) / temperature + (added ? added[i] : 0.0f);
}

// A row's scores, which lie elsewhere, and the largest of each chunk. A chunk has every LANES-th score of a strip, so
// that the maxima of a strip are the lanes of a register. Its own memory is used again.
template <class T> struct Scores {
    const T* all = nullptr;
    int64_t count = 0;
    std::vector<float> peaks, highest;
    std::vector<Scored> kept;
    float largest = -INFINITE;

    // Whether all are numbers, and the largest is finite.
    bool read(const T* scores, int64_t vocab) {
        all = scores;
        count = vocab;
        peaks.resize((vocab + STRIP - 1) / STRIP * LANES);
        bool numbers = true;
        Integers odd[AHEAD] = {};
        float* peak = peaks.data();
        for (int64_t begin = 0; begin < vocab; begin += STRIP, peak += LANES) {
            const int64_t end = std::min(vocab, begin + STRIP);
            int64_t i = begin;
            Floats strip[AHEAD];
            for (Floats& part : strip) part = Floats{} - INFINITE;
            const auto look = [&](auto n, int64_t at) ALWAYS_INLINE {
                const Floats found = Kind<T>::floats(all + at);
                odd[n] |= (Integers)(found != found);
                strip[n] = larger(found, strip[n]);
            };
            for (; i + AHEAD * LANES <= end; i += AHEAD * LANES)
                unrolled<AHEAD>([&](auto n) ALWAYS_INLINE { look(n, i + n * LANES); });
            for (; i + LANES <= end; i += LANES) look(std::integral_constant<int, 0>(), i);
            for (int n = 1; n < AHEAD; n++) strip[0] = larger(strip[n], strip[0]);
            store(peak, strip[0]);
            for (int lane = 0; i < end; i++, lane++) {
                numbers = numbers && score(i) == score(i);
                peak[lane] = std::max(peak[lane], score(i));
            }
        }
        for (const Integers& part : odd)
            for (int lane = 0; lane < LANES; lane++) numbers = numbers && !part[lane];
        largest = *std::max_element(peaks.begin(), peaks.end());
        return numbers && std::isfinite(largest);
    }

    float score(int64_t i) const { return Kind<T>::wide(all[i]); }

    double weight(float score) const { return std::exp(double(score) - double(largest)); }

    // The weights of scores [begin, end) into `to`, if there is one; returns their sum.
    double weigh(int64_t begin, int64_t end, float* to) const {
        Floats sums = {};
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) {
            const Floats weights = exponential(Kind<T>::floats(all + i) - largest);
            sums += weights;
            if (to) store(to + i - begin, weights);
        }
        double sum = total(sums);
        for (; i < end; i++) {
            const float found = float(weight(score(i)));
            sum += found;
            if (to) to[i - begin] = found;
        }
        return sum;
    }

    double sum_of_weights() const {
        double sum = 0;
        for (int64_t i = 0; i < count; i += STRETCH) sum += weigh(i, std::min(count, i + STRETCH), nullptr);
        return sum;
    }

    void keep_from(float least) {
        kept.clear();
        const float* peak = peaks.data();
        for (int64_t begin = 0; begin < count; begin += STRIP, peak += LANES) {
            int lanes[LANES], found = 0;
            for (int lane = 0; lane < LANES; lane++)
                if (peak[lane] >= least) lanes[found++] = lane;
            if (!found) continue;
            const int64_t end = std::min(count, begin + STRIP);
            for (int64_t first = begin; first < end; first += LANES)
                for (int n = 0; n < found && first + lanes[n] < end; n++) {
                    const int64_t i = first + lanes[n];
                    if (score(i) >= least) kept.push_back({score(i), i});
                }
        }
    }

    // The k largest, with all that equal the last of them.
    void keep_top_k(int64_t k) {
        // As many chunks reach the k-th largest peak, each with a score that does.
        float floor = -INFINITE;
        if (k <= int64_t(peaks.size())) {
            highest.resize(k);
            std::partial_sort_copy(peaks.begin(), peaks.end(), highest.begin(), highest.end(), std::greater<float>());
            floor = highest.back();
        }
        keep_from(floor);
        const auto above = [](const Scored& a, const Scored& b) { return a.score > b.score; };
        std::nth_element(kept.begin(), kept.begin() + k - 1, kept.end(), above);
        const float least = kept[k - 1].score;
        drop([least](const Scored& one) { return one.score < least; });
    }

    // The k largest into `tokens`, of equal ones the lowest first, with their shares of all weights.
    void write_top(int64_t k, int64_t* tokens, float* shares) {
        keep_top_k(k);
        std::sort(kept.begin(), kept.end(), [](const Scored& a, const Scored& b) {
            return a.score > b.score || (a.score == b.score && a.token < b.token);
        });
        const double sum = sum_of_weights();
        for (int64_t i = 0; i < k; i++) {
            tokens[i] = kept[i].token;
            shares[i] = float(weight(kept[i].score) / sum);
        }
    }

    double kept_weight() const {
        double sum = 0;
        for (const Scored& one : kept) sum += weight(one.score);
        return sum;
    }

    // The likeliest whose likelier ones together have less than top_p; of equal scores, the highest tokens.
    void keep_top_p(double top_p, bool from_kept) {
        const double wanted = top_p * (from_kept ? kept_weight() : sum_of_weights());
        if (!from_kept)
            for (float depth : {4.0f, 8.0f, 16.0f, INFINITE}) {
                keep_from(largest - depth);
                if (kept_weight() >= wanted) break;
            }
        std::sort(kept.begin(), kept.end(), [](const Scored& a, const Scored& b) {
            return a.score > b.score || (a.score == b.score && a.token > b.token);
        });
        double sum = 0;
        size_t count = 0;
        while (count < kept.size() && sum < wanted) sum += weight(kept[count++].score);
        kept.resize(std::max<size_t>(count, 1));
    }

    void keep_min_p(double min_p, bool from_kept) {
        if (!from_kept) keep_from(largest + float(std::log(min_p)) - 1e-3f);
        drop([this, min_p](const Scored& one) { return weight(one.score) < min_p; });
    }

    template <class F> void drop(F unwanted) {
        kept.erase(std::remove_if(kept.begin(), kept.end(), unwanted), kept.end());
    }
};

template <class T> inline int64_t drawn_of_kept(const Draw& draw, const Scores<T>& scores) {
    if (scores.kept.size() == 1) return scores.kept[0].token;
    Best best;
    for (const Scored& one : scores.kept) {
        const Random random = philox(1 + one.token / TOKENS, draw);
        best.offer(one.token, scores.weight(one.score), uniform(random.words[one.token % TOKENS]));
    }
    return best.token;
}

template <class T> inline int64_t drawn_of_all(const Draw& draw, const Scores<T>& scores) {
    Best best;
    float weights[CHUNK];
    for (int64_t begin = 0; begin < draw.vocab; begin += CHUNK) {
        const int64_t end = std::min(draw.vocab, begin + CHUNK);
        scores.weigh(begin, end, weights);
        for (int64_t first = begin; first < end; first += TOKENS) {
            const Random random = philox(1 + first / TOKENS, draw);
            for (int64_t i = first; i < std::min(end, first + TOKENS); i++)
                best.offer(i, weights[i - begin], uniform(random.words[i - first]));
        }
    }
    return best.token;
}

// Outputs of a draft model after some nodes.
struct Couple {
    const void* logits;     // [rows, outputs]
    const float* noise;     // [depths, outputs]: -log E of the output's token; -infinity if it has none
    const int64_t* depths;  // of each row, among those of the noise
    int64_t rows, outputs, k;
    double temperature;
    int64_t narrow;   // bfloat16, else float32
    int64_t* largest; // [rows, k]: outputs, largest key first; -1 if there is no further one
    float* shares;    // [rows, k]: of e^key in the sum over all outputs
};

template <class T> inline void couple(const Couple& asked) {
    static thread_local Scores<float> scores;
    static thread_local std::vector<float> scaled;
    const T* logits = static_cast<const T*>(asked.logits);
    const int64_t k = std::min(asked.k, asked.outputs);
    std::fill_n(asked.largest, asked.rows * asked.k, -1);
    std::fill_n(asked.shares, asked.rows * asked.k, 0.0f);
    scaled.resize(asked.outputs);
    for (int64_t row = 0; row < asked.rows; row++) {
        const float* noise = asked.noise + asked.depths[row] * asked.outputs;
        scale(logits + row * asked.outputs, asked.outputs, float(asked.temperature), noise, scaled.data());
        if (!scores.read(scaled.data(), asked.outputs)) continue;
        int64_t* largest = asked.largest + row * asked.k;
        scores.write_top(k, largest, asked.shares + row * asked.k);
        for (int64_t i = 0; i < k; i++)
            if (!(scores.kept[i].score > -INFINITE)) largest[i] = -1;
    }
}

// The token; -1 if the largest score is not finite, or one is no number.
template <class T> inline int64_t drawn(const Draw& draw, const T* all) {
    static thread_local Scores<T> scores;
    if (!scores.read(all, draw.vocab)) return -1;
    bool filtered = false;
    if (draw.top_k > 0 && draw.top_k < draw.vocab) {
        scores.keep_top_k(draw.top_k);
        filtered = true;
    }
    if (draw.top_p < 1) {
        scores.keep_top_p(draw.top_p, filtered);
        filtered = true;
    }
    if (draw.min_p > 0) {
        scores.keep_min_p(draw.min_p, filtered);
        filtered = true;
    }
    return filtered ? drawn_of_kept(draw, scores) : drawn_of_all(draw, scores);
}

template <class T> inline int64_t drawn_at_temperature(const Draw& draw) {
    static thread_local std::vector<float> scaled;
    const T* logits = static_cast<const T*>(draw.logits);
    if (draw.temperature == 1) return drawn(draw, logits);
    scaled.resize(draw.vocab);
    scale(logits, draw.vocab, float(draw.temperature), nullptr, scaled.data());
    return drawn<float>(draw, scaled.data());
}

}  // namespace

extern "C" void draftwood_couple(const Couple* asked) {
    if (asked->narrow)
        couple<bfloat16>(*asked);
    else
        couple<float>(*asked);
}

// The token; -1 if the largest logit is not finite, or one is no number.
extern "C" int64_t draftwood_draw(const Draw* draw) {
    return draw->narrow ? drawn_at_temperature<bfloat16>(*draw) : drawn_at_temperature<float>(*draw);
}
