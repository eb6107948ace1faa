// The likeliest tokens of rows of logits, and their probabilities.

#pragma once

#include "draws.h"

namespace {

struct Top {
    const OpenMP* openmp;
    const void* logits;  // [rows, vocab]
    int64_t rows, vocab, k;
    int64_t narrow;      // bfloat16, else float32
    int64_t* tokens;     // [rows, k]: likeliest first, of equal ones the lowest
    float* shares;       // [rows, k]: their softmax probabilities
    int64_t* numbers;    // [rows]: whether all logits are numbers and the largest is finite; else nothing is written
};

template <class T> void top_of_rows(const Top& asked) {
    static thread_local Scores scores;
    const T* logits = static_cast<const T*>(asked.logits);
    for (int64_t row = asked.openmp->thread(); row < asked.rows; row += asked.openmp->threads()) {
        asked.numbers[row] = scores.read(logits + row * asked.vocab, asked.vocab, 1.0f);
        if (!asked.numbers[row]) continue;
        scores.keep_top_k(asked.k);
        std::sort(scores.kept.begin(), scores.kept.end(), [](const Scored& a, const Scored& b) {
            return a.score > b.score || (a.score == b.score && a.token < b.token);
        });
        const double sum = scores.sum_of_weights();
        for (int64_t i = 0; i < asked.k; i++) {
            asked.tokens[row * asked.k + i] = scores.kept[i].token;
            asked.shares[row * asked.k + i] = float(scores.weight(scores.kept[i].score) / sum);
        }
    }
}

void run_top(void* given) {
    const Top& asked = *static_cast<const Top*>(given);
    if (asked.narrow)
        top_of_rows<bfloat16>(asked);
    else
        top_of_rows<float>(asked);
}

}  // namespace

// k is at most the vocabulary's size.
extern "C" void draftwood_top(const Top* asked) { asked->openmp->parallel(run_top, const_cast<Top*>(asked), 0, 0); }
