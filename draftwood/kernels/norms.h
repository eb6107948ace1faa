// RMS norm of rows: y = x / sqrt(mean(x^2) + eps) * w.

#pragma once

#include "vectors.h"

#include <cmath>

namespace {

// With `early`, the quotient is rounded to T before it is multiplied, as in Llama; it makes no difference in float32.
template <class T> void norm(const T* x, const T* w, T* y, int64_t rows, int64_t width, float eps, bool early) {
    typedef Kind<T> K;
    for (int64_t row = 0; row < rows; row++, x += width, y += width) {
        Floats sums = {};
        int64_t k = 0;
        for (; k + LANES <= width; k += LANES) {
            const Floats part = K::floats(x + k);
            sums += part * part;
        }
        float sum = total(sums);
        for (int64_t i = k; i < width; i++) sum += K::wide(x[i]) * K::wide(x[i]);
        const float scale = 1.0f / std::sqrt(sum / float(width) + eps);
        for (k = 0; k + LANES <= width; k += LANES) {
            Floats part = K::floats(x + k) * scale;
            if (early) {
                T rounded[LANES];
                K::put(rounded, part);
                part = K::floats(rounded);
            }
            K::put(y + k, part * K::floats(w + k));
        }
        for (; k < width; k++) {
            float one = K::wide(x[k]) * scale;
            if (early) one = K::wide(K::narrow(one));
            y[k] = K::narrow(one * K::wide(w[k]));
        }
    }
}

}  // namespace

// x and y [rows, width], w [width].
extern "C" void draftwood_rms_norm(const void* x, const void* w, void* y, int64_t rows, int64_t width, double eps,
                                   int64_t early, int64_t narrow) {
    if (narrow)
        norm(static_cast<const bfloat16*>(x), static_cast<const bfloat16*>(w), static_cast<bfloat16*>(y), rows, width,
             float(eps), early != 0);
    else
        norm(static_cast<const float*>(x), static_cast<const float*>(w), static_cast<float*>(y), rows, width,
             float(eps), false);
}
