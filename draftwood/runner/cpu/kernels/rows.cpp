// A linear layer on few rows, in the threads of OpenMP.

#include "rows.h"

struct Product {
    const OpenMP* openmp;
    const void* w;
    int64_t outputs, inputs;
    int64_t narrow;  // bfloat16, else float32
};

namespace {

struct Call {
    const Product* product;
    const void *bias, *x;
    void* y;
    int64_t rows;
};

template <class T> void multiply(const Call& call) {
    const Product& p = *call.product;
    const Weight<T> weight{static_cast<const T*>(p.w), static_cast<const T*>(call.bias), p.outputs, p.inputs};
    product<T>(weight, p.openmp->thread(), p.openmp->threads(), static_cast<const T*>(call.x), static_cast<T*>(call.y),
               call.rows);
}

void run(void* given) {
    const Call& call = *static_cast<const Call*>(given);
    if (call.product->narrow)
        multiply<bfloat16>(call);
    else
        multiply<float>(call);
}

}  // namespace

// x [rows, inputs], bias [outputs] or null, y [rows, outputs].
extern "C" void draftwood_multiply(const Product* product, const void* bias, const void* x, void* y, int64_t rows) {
    Call call{product, bias, x, y, rows};
    product->openmp->parallel(run, &call, 0, 0);
}
