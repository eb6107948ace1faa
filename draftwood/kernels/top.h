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
    static thread_local Scores<T> scores;
    const T* logits = static_cast<const T*>(asked.logits);
    for (int64_t row = asked.openmp->thread(); row < asked.rows; row += asked.openmp->threads()) {
        asked.numbers[row] = scores.read(logits + row * asked.vocab, asked.vocab);
        if (!asked.numbers[row]) continue;
        scores.write_top(asked.k, asked.tokens + row * asked.k, asked.shares + row * asked.k);
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
