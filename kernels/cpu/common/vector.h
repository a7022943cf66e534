// What vectors of numbers do, for the kernel half of a file: loading a part of one, comparing and choosing, sums of
// lanes in a fixed order, and what the processor has an instruction for.
//
// V is Vector<float, Bytes> or Vector<double, Bytes>, or the plain number Vector<T, sizeof(T)>. An element's bits
// depend on the element and the instruction set only: neither on its lane nor on the width of V, so a tail may be done
// with narrower vectors, or with a full one loaded by load_part. No function traps, sets errno or branches on its
// argument.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "isa.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
struct SameSize;
template <>
struct SameSize<float> {
    typedef int32_t Signed;
    typedef uint32_t Unsigned;
};
template <>
struct SameSize<double> {
    typedef int64_t Signed;
    typedef uint64_t Unsigned;
};

// Vectors of integers; one alone is the plain number.
template <typename T, int Bytes>
struct IntegerVectorType {
    typedef T type __attribute__((vector_size(Bytes)));
};
#define SEEGERA_PLAIN_INTEGER(T)             \
    template <>                              \
    struct IntegerVectorType<T, sizeof(T)> { \
        typedef T type;                      \
    };
SEEGERA_PLAIN_INTEGER(int32_t)
SEEGERA_PLAIN_INTEGER(uint32_t)
SEEGERA_PLAIN_INTEGER(int64_t)
SEEGERA_PLAIN_INTEGER(uint64_t)
#undef SEEGERA_PLAIN_INTEGER
template <typename T, int Bytes>
using IntegerVector = typename IntegerVectorType<T, Bytes>::type;

// What a vector is made of: Element<V>, kLanes<V>; Mask<V>, integers of the same width that are 0 or -1; and Bits<V>,
// unsigned ones, in which nothing overflows.
template <typename V>
struct VectorTraits {
    typedef __typeof__(V{}[0] + V{}[0]) Element;
};
template <>
struct VectorTraits<float> {
    typedef float Element;
};
template <>
struct VectorTraits<double> {
    typedef double Element;
};
template <typename V>
using Element = typename VectorTraits<V>::Element;
template <typename V>
constexpr int kLanes = sizeof(V) / sizeof(Element<V>);
template <typename V>
using Mask = IntegerVector<typename SameSize<Element<V>>::Signed, sizeof(V)>;
template <typename V>
using Bits = IntegerVector<typename SameSize<Element<V>>::Unsigned, sizeof(V)>;

template <typename To, typename From>
inline To bits_as(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "the same bytes in another type");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}

template <typename V>
inline V splat(Element<V> value) {
    return value - V{};
}

// A full vector, or where fewer than its lanes are left those, with zeros behind.
template <typename V>
inline V load_part(const Element<V>* address, int64_t left) {
    V vector{};
    if (left >= kLanes<V>) {
        __builtin_memcpy(&vector, address, sizeof(V));
    } else if (left > 0) {
        __builtin_memcpy(&vector, address, left * sizeof(Element<V>));
    }
    return vector;
}

template <typename V>
inline void store_part(Element<V>* address, const V& vector, int64_t left) {
    if (left >= kLanes<V>) {
        __builtin_memcpy(address, &vector, sizeof(V));
    } else if (left > 0) {
        __builtin_memcpy(address, &vector, left * sizeof(Element<V>));
    }
}

// --- Comparing and choosing ------------------------------------------------------------------------------------------

template <typename V>
inline Mask<V> less(V a, V b) {
    if constexpr (kLanes<V> == 1) {
        return -static_cast<Mask<V>>(a < b);
    } else {
        return a < b;
    }
}

template <typename V>
inline Mask<V> less_equal(V a, V b) {
    if constexpr (kLanes<V> == 1) {
        return -static_cast<Mask<V>>(a <= b);
    } else {
        return a <= b;
    }
}

// The lanes where the mask is set, +0 elsewhere.
template <typename V>
inline V keep(Mask<V> mask, V vector) {
    return bits_as<V>(bits_as<Mask<V>>(vector) & mask);
}

template <typename V>
inline V select(Mask<V> mask, V yes, V no) {
    return mask ? yes : no;
}

// weight * value, and 0 where the weight is 0, even if the value is infinite or NaN.
template <typename V>
inline V weighted(V weight, V value) {
    if constexpr (kLanes<V> == 1) {
        return weight == 0 ? V(0) : weight * value;
    } else {
        return keep<V>(weight != 0, weight * value);
    }
}

// A NaN in `a` stays.
template <typename V>
inline V at_least(V a, Element<V> bound) {
    return select(less(a, splat<V>(bound)), splat<V>(bound), a);
}

template <typename V>
inline V at_most(V a, Element<V> bound) {
    return select(less(splat<V>(bound), a), splat<V>(bound), a);
}

template <typename V>
inline Bits<V> sign_bit() {
    return (Bits<V>{} + 1) << (8 * sizeof(Element<V>) - 1);
}

template <typename V>
inline V negative_magnitude(V a) {
    return bits_as<V>(bits_as<Bits<V>>(a) | sign_bit<V>());
}

template <typename V>
inline V magnitude(V a) {
    return bits_as<V>(bits_as<Bits<V>>(a) & ~sign_bit<V>());
}

// --- Sums in a fixed order -------------------------------------------------------------------------------------------

// The sum of the lanes: the upper half is added to the lower one until one number is left.
template <typename V>
inline Element<V> horizontal_sum(const V& vector) {
    if constexpr (kLanes<V> == 1) {
        return vector;
    } else {
        typedef Vector<Element<V>, sizeof(V) / 2> Half;
        Half halves[2];
        __builtin_memcpy(halves, &vector, sizeof(V));
        return horizontal_sum<Half>(halves[0] + halves[1]);
    }
}

// The same, taken in double.
template <typename V>
inline double horizontal_sum_double(const V& vector) {
    if constexpr (sizeof(Element<V>) == sizeof(double)) {
        return horizontal_sum(vector);
    } else if constexpr (kLanes<V> == 1) {
        return vector;
    } else {
        typedef Vector<float, sizeof(V) / 2> Half;
        typedef Vector<double, sizeof(V)> Wide;
        Half halves[2];
        __builtin_memcpy(halves, &vector, sizeof(V));
        if constexpr (kLanes<V> == 2) {
            return static_cast<double>(halves[0]) + static_cast<double>(halves[1]);
        } else {
            return horizontal_sum<Wide>(__builtin_convertvector(halves[0], Wide) +
                                        __builtin_convertvector(halves[1], Wide));
        }
    }
}

// --- Instructions ----------------------------------------------------------------------------------------------------

// a * b + c, in one rounding where the instruction set has that. Vectors leave it to the compiler's contraction, which
// for plain numbers depends on the code around.
template <typename V>
inline V multiply_add(V a, V b, V c) {
#if defined(__FMA__) || defined(__aarch64__)
    if constexpr (kLanes<V> == 1) {
        if constexpr (sizeof(V) == sizeof(float)) {
            return __builtin_fmaf(a, b, c);
        } else {
            return __builtin_fma(a, b, c);
        }
    }
#endif
    return a * b + c;
}

template <typename V>
inline V sqrt(V x) {
    if constexpr (kLanes<V> == 1) {
        if constexpr (sizeof(V) == sizeof(float)) {
            return __builtin_sqrtf(x);
        } else {
            return __builtin_sqrt(x);
        }
    } else {
        constexpr bool single = sizeof(Element<V>) == sizeof(float);
#if defined(__x86_64__)
        if constexpr (sizeof(V) == 16) {
            if constexpr (single) {
                return bits_as<V>(_mm_sqrt_ps(bits_as<__m128>(x)));
            } else {
                return bits_as<V>(_mm_sqrt_pd(bits_as<__m128d>(x)));
            }
        }
#if defined(__AVX__)
        if constexpr (sizeof(V) == 32) {
            if constexpr (single) {
                return bits_as<V>(_mm256_sqrt_ps(bits_as<__m256>(x)));
            } else {
                return bits_as<V>(_mm256_sqrt_pd(bits_as<__m256d>(x)));
            }
        }
#endif
#if defined(__AVX512F__)
        if constexpr (sizeof(V) == 64) {
            if constexpr (single) {
                return bits_as<V>(_mm512_maskz_sqrt_ps(0xffff, bits_as<__m512>(x)));
            } else {
                return bits_as<V>(_mm512_maskz_sqrt_pd(0xff, bits_as<__m512d>(x)));
            }
        }
#endif
#elif defined(__aarch64__)
        if constexpr (sizeof(V) == 16) {
            if constexpr (single) {
                return bits_as<V>(vsqrtq_f32(bits_as<float32x4_t>(x)));
            } else {
                return bits_as<V>(vsqrtq_f64(bits_as<float64x2_t>(x)));
            }
        }
#endif
        V root;
        for (int i = 0; i < kLanes<V>; ++i) {
            root[i] = sqrt<Element<V>>(x[i]);
        }
        return root;
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera
