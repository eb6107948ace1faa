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

constexpr int64_t CHUNK = 64;      // scores that share a maximum
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

// A row's scores, and the largest of each chunk. Its memory is used again.
struct Scores {
    std::vector<float> all, peaks;
    std::vector<Scored> kept;
    float largest = -INFINITE;

    // Logits over the temperature, and what is added to them, if anything. Whether all are numbers, and one is finite.
    template <class T> bool read(const T* logits, int64_t vocab, float temperature, const float* added = nullptr) {
        all.resize(vocab);
        peaks.assign((vocab + CHUNK - 1) / CHUNK, -INFINITE);
        bool numbers = true;
        Integers odd = {};
        for (int64_t chunk = 0; chunk < int64_t(peaks.size()); chunk++) {
            const int64_t end = std::min(vocab, (chunk + 1) * CHUNK);
            int64_t i = chunk * CHUNK;
            Floats peak = Floats{} - INFINITE;
            for (; i + LANES <= end; i += LANES) {
                Floats scores = Kind<T>::floats(logits + i) / temperature;
                if (added) scores += load<Floats>(added + i);
                store(&all[i], scores);
                odd |= (Integers)(scores != scores);
                peak = larger(scores, peak);
            }
            float found = i > chunk * CHUNK ? greatest(peak) : -INFINITE;
            for (; i < end; i++) {
                all[i] = Kind<T>::wide(logits[i]) / temperature + (added ? added[i] : 0.0f);
                numbers = numbers && all[i] == all[i];
                found = std::max(found, all[i]);
            }
            peaks[chunk] = found;
        }
        for (int lane = 0; lane < LANES; lane++) numbers = numbers && !odd[lane];
        largest = *std::max_element(peaks.begin(), peaks.end());
        return numbers && std::isfinite(largest);
    }

    double weight(float score) const { return std::exp(double(score) - double(largest)); }

    // The weights of scores [begin, end) into `to`, if there is one; returns their sum.
    double weigh(int64_t begin, int64_t end, float* to) const {
        Floats sums = {};
        int64_t i = begin;
        for (; i + LANES <= end; i += LANES) {
            const Floats weights = exponential(load<Floats>(&all[i]) - largest);
            sums += weights;
            if (to) store(to + i - begin, weights);
        }
        double sum = total(sums);
        for (; i < end; i++) {
            const float found = float(weight(all[i]));
            sum += found;
            if (to) to[i - begin] = found;
        }
        return sum;
    }

    double sum_of_weights() const {
        double sum = 0;
        const int64_t vocab = all.size();
        for (int64_t i = 0; i < vocab; i += STRETCH) sum += weigh(i, std::min(vocab, i + STRETCH), nullptr);
        return sum;
    }

    void keep_from(float least) {
        kept.clear();
        for (int64_t chunk = 0; chunk < int64_t(peaks.size()); chunk++) {
            if (!(peaks[chunk] >= least)) continue;
            const int64_t end = std::min(int64_t(all.size()), (chunk + 1) * CHUNK);
            for (int64_t i = chunk * CHUNK; i < end; i++)
                if (all[i] >= least) kept.push_back({all[i], i});
        }
    }

    // The k largest, with all that equal the last of them.
    void keep_top_k(int64_t k) {
        // As many chunks reach the k-th largest peak, each with a score that does.
        float floor = -INFINITE;
        if (k <= int64_t(peaks.size())) {
            std::vector<float> sorted(peaks);
            std::nth_element(sorted.begin(), sorted.begin() + k - 1, sorted.end(), std::greater<float>());
            floor = sorted[k - 1];
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

inline int64_t drawn_of_kept(const Draw& draw, const Scores& scores) {
    if (scores.kept.size() == 1) return scores.kept[0].token;
    Best best;
    for (const Scored& one : scores.kept) {
        const Random random = philox(1 + one.token / TOKENS, draw);
        best.offer(one.token, scores.weight(one.score), uniform(random.words[one.token % TOKENS]));
    }
    return best.token;
}

inline int64_t drawn_of_all(const Draw& draw, const Scores& scores) {
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

template <class T> inline void couple(const Couple& asked, Scores& scores) {
    const T* logits = static_cast<const T*>(asked.logits);
    const int64_t k = std::min(asked.k, asked.outputs);
    std::fill_n(asked.largest, asked.rows * asked.k, -1);
    std::fill_n(asked.shares, asked.rows * asked.k, 0.0f);
    for (int64_t row = 0; row < asked.rows; row++) {
        const float* noise = asked.noise + asked.depths[row] * asked.outputs;
        if (!scores.read(logits + row * asked.outputs, asked.outputs, float(asked.temperature), noise)) continue;
        int64_t* largest = asked.largest + row * asked.k;
        scores.write_top(k, largest, asked.shares + row * asked.k);
        for (int64_t i = 0; i < k; i++)
            if (!(scores.kept[i].score > -INFINITE)) largest[i] = -1;
    }
}

}  // namespace

extern "C" void draftwood_couple(const Couple* asked) {
    static thread_local Scores scores;
    if (asked->narrow)
        couple<bfloat16>(*asked, scores);
    else
        couple<float>(*asked, scores);
}

// The token; -1 if the largest logit is not finite, or one is no number.
extern "C" int64_t draftwood_draw(const Draw* draw) {
    static thread_local Scores scores;
    const float temperature = float(draw->temperature);
    const bool numbers = draw->narrow ? scores.read(static_cast<const bfloat16*>(draw->logits), draw->vocab, temperature)
                                      : scores.read(static_cast<const float*>(draw->logits), draw->vocab, temperature);
    if (!numbers) return -1;
    bool filtered = false;
    if (draw->top_k > 0 && draw->top_k < draw->vocab) {
        scores.keep_top_k(draw->top_k);
        filtered = true;
    }
    if (draw->top_p < 1) {
        scores.keep_top_p(draw->top_p, filtered);
        filtered = true;
    }
    if (draw->min_p > 0) {
        scores.keep_min_p(draw->min_p, filtered);
        filtered = true;
    }
    return filtered ? drawn_of_kept(*draw, scores) : drawn_of_all(*draw, scores);
}
