// Products of few rows with a weight matrix in the layout of nn.Linear: y = x @ w.T + bias.
//
// A step of decoding multiplies every weight with 1 to 64 rows, so that reading the weight takes most of the time. Here
// every thread reads its part of the weight from memory once, front to back. Every element of y is summed in one order,
// whatever the number of rows: a token's result does not depend on the tokens beside it.
//
// C++17 with the vector extensions of GCC and Clang, compiled for the processor that it runs on.

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

// Compilers load a value again for each use where an instruction can read memory; there are fewer loads than products.
#if defined(__AVX512F__)
#define IN_REGISTER(value) __asm__("" : "+v"(value))
#elif defined(__x86_64__)
#define IN_REGISTER(value) __asm__("" : "+x"(value))
#else
#define IN_REGISTER(value) __asm__("" : "+w"(value))
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;  // floats of a register
constexpr int REGISTERS = 32;
#elif defined(__AVX__)
constexpr int LANES = 8;
constexpr int REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int LANES = 4;
constexpr int REGISTERS = 32;
#else
constexpr int LANES = 4;
constexpr int REGISTERS = 16;
#endif

constexpr int MOST = REGISTERS == 32 ? 8 : 4;  // rows of x that are multiplied together
constexpr int BLOCK = 12;                      // rows of w that stay in the cache for FEW rows of x
constexpr int64_t FEW = 64;                    // rows of x that stay in the cache for all rows of w

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

struct bfloat16 {
    uint16_t bits;
};

template <class V> inline V load(const void* from) {
    V found;
    std::memcpy(&found, from, sizeof found);
    return found;
}

// STEP elements are multiplied at a time; `product` adds them to LANES sums.
template <class T> struct Kind;

template <> struct Kind<float> {
    typedef Floats Vector;
    static constexpr int STEP = LANES;
    static inline Floats product(Floats sum, Vector a, Vector b) { return sum + a * b; }
    static inline float wide(float x) { return x; }
    static inline float narrow(float x) { return x; }
};

template <> struct Kind<bfloat16> {
#if defined(__AVX512BF16__)
    typedef __m512i Vector;
    static constexpr int STEP = 2 * LANES;
    static inline Floats product(Floats sum, Vector a, Vector b) {
        return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
    }
#else
    typedef Halves Vector;
    static constexpr int STEP = LANES;
    static inline Floats floats(Halves x) { return (Floats)(__builtin_convertvector(x, Words) << 16); }
    static inline Floats product(Floats sum, Vector a, Vector b) { return sum + floats(a) * floats(b); }
#endif
    static inline float wide(bfloat16 x) {
        const uint32_t bits = uint32_t(x.bits) << 16;
        float found;
        std::memcpy(&found, &bits, 4);
        return found;
    }
    static inline bfloat16 narrow(float x) {  // to the nearest, ties to even
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        if (x != x) return {0x7fc0};
        return {uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
    }
};

// Which lane of a and b together, for the first half of every 2 WIDTH lanes.
template <int WIDTH> constexpr int half(int lane) { return lane / WIDTH * 2 * WIDTH + lane % WIDTH; }

template <int... AT> inline Floats shuffled(Floats a, Floats b) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, AT...);
#else
    return __builtin_shuffle(a, b, Words{uint32_t(AT)...});
#endif
}

// Halves the lanes of every sum, so that those of a and of b fit into one register.
template <int WIDTH, int... LANE>
inline Floats folded(Floats a, Floats b, std::integer_sequence<int, LANE...>) {
    return shuffled<half<WIDTH>(LANE)...>(a, b) + shuffled<half<WIDTH>(LANE) + WIDTH...>(a, b);
}

// The sums of LANES registers, in one: lanes i and i + LANES / 2 are added first.
template <int WIDTH = LANES / 2> inline Floats summed(const Floats* x) {
    if constexpr (WIDTH == 0) {
        return *x;
    } else {
        Floats half[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            half[i] = folded<WIDTH>(x[2 * i], x[2 * i + 1], std::make_integer_sequence<int, LANES>());
        return summed<WIDTH / 2>(half);
    }
}

template <class T> struct Weight {
    const T* w;     // [outputs, inputs]
    const T* bias;  // [outputs], or null
    int64_t outputs, inputs;
};

// R rows of w with M rows of x. Meanwhile LINES rows' worth of w comes from memory, from `ahead` on.
template <class T, int R, int M, int LINES>
inline void tile(const Weight<T>& weight, int64_t o, const T* x, T* y, const T* ahead) {
    typedef Kind<T> K;
    typedef typename K::Vector Vector;
    const int64_t n = weight.inputs;
    const T* w = weight.w + o * n;
    constexpr int GROUPS = (R * M + LANES - 1) / LANES;
    Floats sums[GROUPS * LANES] = {};  // [M, R], filled up
    int64_t k = 0;
    for (; k + K::STEP <= n; k += K::STEP) {
        Vector parts[R];
        for (int r = 0; r < R; r++) parts[r] = load<Vector>(w + r * n + k);
        // In the order of memory: that is much faster than a line of each row in turn.
        for (int i = 0; i < LINES; i++) __builtin_prefetch(ahead + LINES * k + i * K::STEP, 0, 2);
        for (int m = 0; m < M; m++) {
            Vector other = load<Vector>(x + m * n + k);
            IN_REGISTER(other);
            for (int r = 0; r < R; r++) sums[m * R + r] = K::product(sums[m * R + r], parts[r], other);
        }
    }
    if (k < n) {  // the rest, filled up with zeros
        const size_t bytes = (n - k) * sizeof(T);
        Vector parts[R], other;
        for (int r = 0; r < R; r++) {
            std::memset(&parts[r], 0, sizeof(Vector));
            std::memcpy(&parts[r], w + r * n + k, bytes);
        }
        for (int m = 0; m < M; m++) {
            std::memset(&other, 0, sizeof other);
            std::memcpy(&other, x + m * n + k, bytes);
            for (int r = 0; r < R; r++) sums[m * R + r] = K::product(sums[m * R + r], parts[r], other);
        }
    }
    float found[GROUPS * LANES];
    for (int g = 0; g < GROUPS; g++) {
        const Floats group = summed(sums + g * LANES);
        std::memcpy(found + g * LANES, &group, sizeof group);
    }
    for (int r = 0; r < R; r++) {
        const float bias = weight.bias ? K::wide(weight.bias[o + r]) : 0.0f;
        for (int m = 0; m < M; m++) y[m * weight.outputs + o + r] = K::narrow(found[m * R + r] + bias);
    }
}

// Rows of w that are multiplied together: their sums, their parts and one of x fit into the registers.
template <int M> constexpr int ROWS = (REGISTERS - 1) / (M + 1) >= 4 ? 4 : (REGISTERS - 1) / (M + 1);

// BLOCK rows of w with M rows of x.
template <class T, int M, int LINES>
void block(const Weight<T>& weight, int64_t o, const T* x, T* y, const T* ahead) {
    constexpr int R = ROWS<M>;
    static_assert(BLOCK % R == 0);
    for (int i = 0; i < BLOCK; i += R) tile<T, R, M, LINES>(weight, o + i, x, y, ahead + i * weight.inputs);
}

// The next block comes from memory while this one is multiplied with all rows of x: part `turn` of it, of `turns`.
template <class T, int M>
void turn_of_block(const Weight<T>& weight, int64_t o, const T* x, T* y, const T* ahead, int64_t turn, int64_t turns) {
    constexpr int R = ROWS<M>, SOME = (R + 1) / 2;
    const int64_t lines = !ahead ? 0 : turns == 1 ? R : turns < R ? SOME : 1;
    if (turn * lines >= R || lines == 0) return block<T, M, 0>(weight, o, x, y, weight.w);
    ahead += turn * lines * weight.inputs;
    if (lines == R)
        block<T, M, R>(weight, o, x, y, ahead);
    else if (lines == SOME)
        block<T, M, SOME>(weight, o, x, y, ahead);
    else
        block<T, M, 1>(weight, o, x, y, ahead);
}

template <class T> using Turn = void (*)(const Weight<T>&, int64_t, const T*, T*, const T*, int64_t, int64_t);

template <class T, int... M> constexpr auto turns_of(std::integer_sequence<int, M...>) {
    struct { Turn<T> by_rows[sizeof...(M)]; } found{{turn_of_block<T, M + 1>...}};
    return found;
}

// Rows first to end of w with all rows of x.
template <class T>
void part(const Weight<T>& weight, int64_t first, int64_t end, const T* x, T* y, int64_t rows) {
    static constexpr auto TURNS = turns_of<T>(std::make_integer_sequence<int, MOST>());
    const int64_t n = weight.inputs, turns = (rows + MOST - 1) / MOST;
    int64_t o = first;
    for (; o + BLOCK <= end; o += BLOCK) {
        const T* ahead = o + 2 * BLOCK <= end ? weight.w + (o + BLOCK) * n : nullptr;
        for (int64_t i = 0, done = 0; i < turns; i++) {  // of about equal numbers of rows
            const int64_t m = rows * (i + 1) / turns - done;
            TURNS.by_rows[m - 1](weight, o, x + done * n, y + done * weight.outputs, ahead, i, turns);
            done += m;
        }
    }
    for (; o < end; o++)
        for (int64_t m = 0; m < rows; m++)
            tile<T, 1, 1, 0>(weight, o, x + m * n, y + m * weight.outputs, weight.w);
}

}  // namespace

// OpenMP of the caller, whose threads are used.
struct OpenMP {
    void (*parallel)(void (*)(void*), void*, unsigned, unsigned);  // GOMP_parallel
    int (*thread)();                                                // omp_get_thread_num
    int (*threads)();                                               // omp_get_num_threads
};

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

// What one thread computes.
template <class T> void multiply(const Call& call) {
    const Product& p = *call.product;
    const int64_t thread = p.openmp->thread(), threads = p.openmp->threads();
    const Weight<T> weight{static_cast<const T*>(p.w), static_cast<const T*>(call.bias), p.outputs, p.inputs};
    const T* x = static_cast<const T*>(call.x);
    T* y = static_cast<T*>(call.y);
    for (int64_t done = 0; done < call.rows; done += FEW) {
        const int64_t rows = call.rows - done < FEW ? call.rows - done : FEW;
        part<T>(weight, p.outputs * thread / threads, p.outputs * (thread + 1) / threads, x + done * p.inputs,
                y + done * p.outputs, rows);
    }
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
