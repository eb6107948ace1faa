// RMS norm of rows, in the calling thread.

#include "norms.h"

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
