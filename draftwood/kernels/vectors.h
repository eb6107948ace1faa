// Vectors, their sums and PyTorch's threads, for the other files of this directory.
//
// C++17 with the vector extensions of GCC and Clang, compiled for the processor that it runs on.

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Compilers load a value again for each use where an instruction can read memory.
#if defined(__AVX512F__)
#define IN_REGISTER(value) __asm__("" : "+v"(value))
#elif defined(__x86_64__)
#define IN_REGISTER(value) __asm__("" : "+x"(value))
#else
#define IN_REGISTER(value) __asm__("" : "+w"(value))
#endif

// Behind the parameters of a lambda: its body is part of its caller.
#define ALWAYS_INLINE __attribute__((always_inline))

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

constexpr int64_t LINE = 64;  // bytes of a cache line

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef int32_t Integers __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef int16_t Shorts __attribute__((vector_size(2 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(LANES)));

struct bfloat16 {
    uint16_t bits;
};

template <class V> inline V load(const void* from) {
    V found;
    std::memcpy(&found, from, sizeof found);
    return found;
}

template <class V> inline void store(void* to, V value) { std::memcpy(to, &value, sizeof value); }

// Lines that will be read soon come from memory into the second cache.
template <class T> inline void fetch(const T* from, int64_t count) {
    for (int64_t i = 0; i < count; i += LINE / sizeof(T)) __builtin_prefetch(from + i, 0, 2);
}

template <class F, int... I> ALWAYS_INLINE inline void each_of(F f, std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>()), ...);
}

// Calls f with the constants 0 to N - 1: of an array indexed by constants alone, compilers make registers.
template <int N, class F> ALWAYS_INLINE inline void unrolled(F f) { each_of(f, std::make_integer_sequence<int, N>()); }

// x in all lanes. Of x + 0, compilers make a sum, as it differs from x where that is -0.
inline Floats all(float x) { return x - Floats{}; }

inline Floats floats_of(const int8_t* x) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load<__m128i>(x)));
#elif defined(__AVX2__)
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)x)));
#else
    // In steps: compilers take the elements of a wider conversion one by one.
    const Shorts wider = __builtin_convertvector(load<Bytes>(x), Shorts);
    return __builtin_convertvector(__builtin_convertvector(wider, Integers), Floats);
#endif
}

// Of an element type: `floats` reads and `put` writes LANES elements as float32. For products of sums, STEP elements
// are multiplied at a time, read as they are or from int8, which is exact; `product` adds them to LANES sums.
template <class T> struct Kind;

template <> struct Kind<float> {
    typedef Floats Vector;
    static constexpr int STEP = LANES;
    static inline Floats product(Floats sum, Vector a, Vector b) { return sum + a * b; }
    static inline Vector read(const float* x) { return load<Vector>(x); }
    static inline Vector read(const int8_t* x) { return floats_of(x); }
    static inline float wide(float x) { return x; }
    static inline float narrow(float x) { return x; }
    static inline Floats floats(const float* x) { return load<Floats>(x); }
    static inline void put(float* to, Floats x) { store(to, x); }
};

template <> struct Kind<bfloat16> {
#if defined(__AVX512BF16__)
    typedef __m512i Vector;
    static constexpr int STEP = 2 * LANES;
    static inline Floats product(Floats sum, Vector a, Vector b) {
        return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
    }
    static inline Vector read(const int8_t* x) {
        return (Vector)_mm512_cvtne2ps_pbh((__m512)floats_of(x + LANES), (__m512)floats_of(x));
    }
    static inline Vector read(const bfloat16* x) { return load<Vector>(x); }
#else
    typedef Floats Vector;
    static constexpr int STEP = LANES;
    static inline Floats product(Floats sum, Vector a, Vector b) { return sum + a * b; }
    static inline Vector read(const int8_t* x) { return floats_of(x); }
    static inline Vector read(const bfloat16* x) { return widened(load<Halves>(x)); }
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
    static inline Floats widened(Halves x) {  // of wider ones, compilers convert each half alone
#if defined(__AVX512F__)
        return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16);
#elif defined(__AVX2__)
        return (Floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)x), 16);
#else
        return (Floats)(__builtin_convertvector(x, Words) << 16);
#endif
    }
    static inline Floats floats(const bfloat16* x) { return widened(load<Halves>(x)); }
    static inline void put(bfloat16* to, Floats x) {
        const Words bits = (Words)x, odd = (bits >> 16) & 1, rounded = (bits + 0x7fff + odd) >> 16;
        const Words nan = (Words)(x != x);
        store(to, __builtin_convertvector((rounded & ~nan) | (nan & 0x7fc0), Halves));
    }
};

// The lane of a and b together that a fold of WIDTH puts into a lane: of each 2 WIDTH lanes the first half, once of a
// and once of b. That is one instruction, as narrow folds stay in 4 lanes and wide ones do not part them.
template <int WIDTH> constexpr int first_half(int lane) {
    if (WIDTH >= 4) return lane / WIDTH % 2 * LANES + lane / (2 * WIDTH) * 2 * WIDTH + lane % WIDTH;
    return lane % 4 / 2 * LANES + lane / 4 * 4 + lane % 2 / WIDTH * 2 * WIDTH + lane % WIDTH;
}

template <int... AT> inline Floats shuffled(Floats a, Floats b) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, AT...);
#else
    return __builtin_shuffle(a, b, Words{uint32_t(AT)...});
#endif
}

// Halves the lanes of both sums, so that they fit into one register.
template <int WIDTH, int... LANE>
inline Floats folded(Floats a, Floats b, std::integer_sequence<int, LANE...>) {
    return shuffled<first_half<WIDTH>(LANE)...>(a, b) + shuffled<first_half<WIDTH>(LANE) + WIDTH...>(a, b);
}

// The sums of the lanes of 2 WIDTH registers, in one: lanes i and i + LANES / 2 are added first.
template <int WIDTH = LANES / 2> inline Floats summed(const Floats* x) {
    if constexpr (WIDTH == 0) {
        return *x;
    } else {
        constexpr bool WIDE = WIDTH >= 4;
        Floats half[WIDTH];
        unrolled<WIDTH>([&](auto i) ALWAYS_INLINE {
            half[i] = folded<WIDTH>(x[WIDE ? i : 2 * i], x[WIDE ? i + WIDTH : 2 * i + 1],
                                    std::make_integer_sequence<int, LANES>());
        });
        return summed<WIDTH / 2>(half);
    }
}

// Blocks of WIDTH lanes of a and b change places: the second ones of a with the first ones of b.
template <int WIDTH, int... LANE>
inline void exchange(Floats& a, Floats& b, std::integer_sequence<int, LANE...>) {
    const Floats first = shuffled<(LANE & WIDTH ? LANE - WIDTH + LANES : LANE)...>(a, b);
    b = shuffled<(LANE & WIDTH ? LANE + LANES : LANE + WIDTH)...>(a, b);
    a = first;
}

// LANES rows become columns.
template <int WIDTH = LANES / 2> inline void transpose(Floats* x) {
    unrolled<LANES / 2>([&](auto i) ALWAYS_INLINE {
        constexpr int AT = i / WIDTH * 2 * WIDTH + i % WIDTH;
        exchange<WIDTH>(x[AT], x[AT + WIDTH], std::make_integer_sequence<int, LANES>());
    });
    if constexpr (WIDTH > 1) transpose<WIDTH / 2>(x);
}

// Adds to sums [M, R] the products of R vectors with M others, each of which is read once and stays in a register.
template <class K, int R, int M, class Parts, class Others>
ALWAYS_INLINE inline void add_products(Parts part, Others other, Floats* sums) {
    typename K::Vector parts[R];
    unrolled<R>([&](auto r) ALWAYS_INLINE {
        parts[r] = part(r);
        IN_REGISTER(parts[r]);
    });
    unrolled<M>([&](auto m) ALWAYS_INLINE {
        typename K::Vector one = other(m);
        IN_REGISTER(one);
        unrolled<R>([&](auto r) ALWAYS_INLINE { sums[m * R + r] = K::product(sums[m * R + r], parts[r], one); });
    });
}

// N sums, filled up to whole registers.
template <int N> constexpr int SUMS = (N + LANES - 1) / LANES * LANES;

// The sums of the lanes of SUMS<N> registers, into as many floats.
template <int N> inline void put_sums(const Floats* x, float* to) {
    unrolled<SUMS<N> / LANES>([&](auto g) ALWAYS_INLINE { store(to + g * LANES, summed(x + g * LANES)); });
}

// Lane i has what lane i + WIDTH had, and lane LANES - WIDTH + i what lane i had.
template <int WIDTH, int... LANE> inline Floats turned(Floats x, std::integer_sequence<int, LANE...>) {
    return shuffled<(LANE + WIDTH) % LANES...>(x, x);
}

// f of all lanes: of lanes i and i + LANES / 2 first.
template <int WIDTH = LANES / 2, class F> inline float all_lanes(Floats x, F f) {
    if constexpr (WIDTH == 0)
        return x[0];
    else
        return all_lanes<WIDTH / 2>(f(x, turned<WIDTH>(x, std::make_integer_sequence<int, LANES>())), f);
}

// The sum of the lanes, in the order of `summed`.
inline float total(Floats x) {
    return all_lanes(x, [](Floats a, Floats b) ALWAYS_INLINE { return a + b; });
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

inline float greatest(Floats x) { return all_lanes(x, larger); }

constexpr float LEAST = -87.0f;  // e^x of less is taken as 0

// e^x for x <= 0 to two units in the last place (Cephes' polynomial); 0 below LEAST.
inline Floats exponential(Floats x) {
    const Floats shift = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const Floats shifted = x * 1.44269504088896341f + shift;
    const Floats n = shifted - shift;
    const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Floats power = (Floats)(((Integers)shifted - (Integers)shift + 127) << 23);
    return x < LEAST ? Floats{} : p * power;
}

}  // namespace

struct Range {
    int64_t begin, end;
};

// A thread's part of `count` things.
inline Range part_of(int64_t count, int64_t thread, int64_t threads) {
    return {count * thread / threads, count * (thread + 1) / threads};
}

// OpenMP of the caller, whose threads are used.
struct OpenMP {
    void (*parallel)(void (*)(void*), void*, unsigned, unsigned);  // GOMP_parallel
    int (*thread)();                                                // omp_get_thread_num
    int (*threads)();                                               // omp_get_num_threads
};
