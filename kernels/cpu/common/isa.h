// Vector types, and the choice of the instruction set at run time.
//
// Every .cpp of kernels/cpu and kernels/cpu/common is compiled several times (see CMakeLists.txt):
//
//   - once per instruction set, with SEEGERA_ISA=base|avx2|avx512 naming the namespace that its kernels go into.
//     These compiles see neither torch's headers nor the standard library's templates: an inline function compiled
//     for AVX-512 there could be the copy that the linker keeps for the whole library, and would then crash a machine
//     without AVX-512. Shared helpers therefore live in the namespace SEEGERA_ISA too.
//   - once with SEEGERA_REGISTER, for the baseline of the architecture: memory, threads and torch's registration.
//
// The two halves meet in functions declared with SEEGERA_FOR_EACH_ISA and called through SEEGERA_CHOOSE.
#pragma once

#include <cstdint>

namespace seegera {

constexpr int kLineBytes = 64;        // a cache line
constexpr int kMostVectorBytes = 64;  // the widest vector of any instruction set

// Rows and columns are divided among tasks at multiples of this: whole vectors and whole cache lines, of float32 and of
// float64.
constexpr int64_t kUnit = 16;

enum class Isa { base, avx2, avx512 };

// The instruction set in use: the best one of this machine, or the one that the environment variable SEEGERA_ISA names
// when the library is loaded. A set that the machine lacks, or an unknown name, counts as not given.
Isa isa();

}  // namespace seegera

#ifdef SEEGERA_REGISTER

#if defined(__x86_64__)
#define SEEGERA_FOR_EACH_ISA(...) \
    namespace base {              \
    __VA_ARGS__                   \
    }                             \
    namespace avx2 {              \
    __VA_ARGS__                   \
    }                             \
    namespace avx512 {            \
    __VA_ARGS__                   \
    }
// Address of `function` for the instruction set in use.
#define SEEGERA_CHOOSE(function) \
    (isa() == Isa::avx512 ? &avx512::function : isa() == Isa::avx2 ? &avx2::function : &base::function)
#else
#define SEEGERA_FOR_EACH_ISA(...) \
    namespace base {              \
    __VA_ARGS__                   \
    }
#define SEEGERA_CHOOSE(function) (&base::function)
#endif

#else

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace seegera {
namespace SEEGERA_ISA {

// Width of a vector: it must match the set, as GCC splits a wider one through memory.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// Vector<T, Bytes>: Bytes / sizeof(T) numbers with element-wise operators; one number alone is the plain scalar.
template <typename T, int Bytes>
struct VectorType {
    typedef T type __attribute__((vector_size(Bytes)));
};
template <>
struct VectorType<float, sizeof(float)> {
    typedef float type;
};
template <>
struct VectorType<double, sizeof(double)> {
    typedef double type;
};
template <typename T, int Bytes>
using Vector = typename VectorType<T, Bytes>::type;

template <typename V, typename T>
inline V load(const T* address) {
    V vector;
    __builtin_memcpy(&vector, address, sizeof(V));
    return vector;
}

template <typename V, typename T>
inline void store(T* address, const V& vector) {
    __builtin_memcpy(address, &vector, sizeof(V));
}

// Stores a whole vector of kVectorBytes past the caches, for results that they cannot hold: an ordinary store reads the
// line first. The address is a multiple of kVectorBytes, and other threads see it after stream_fence().
template <typename V, typename T>
inline void stream(T* address, const V& vector) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(address), (__m512i)vector);
#elif defined(__AVX2__)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(address), (__m256i)vector);
#elif defined(__x86_64__)
    _mm_stream_si128(reinterpret_cast<__m128i*>(address), (__m128i)vector);
#else
    store(address, vector);
#endif
}

inline void stream_fence() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#endif
