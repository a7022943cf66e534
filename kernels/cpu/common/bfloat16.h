// Products of float32 matrices whose elements are rounded to bfloat16 first, with sums in float32.
//
// A bfloat16 has the exponent of a float32 and 8 bits of its significand: of finite numbers only those of 3.4e38, the
// largest ones, become infinite. A product of two is exact in float32; an element of the result has a relative error of
// some 2^-9 of what was added up. With a second bfloat16 for what the first one leaves over, and three products, the
// error is some 2^-17.
#pragma once

#include <cstdint>

#include "isa.h"

namespace seegera {

// A matrix of float32, strides in numbers.
struct FloatMatrix {
    const float* data;
    int64_t row_stride;
    int64_t column_stride;
};

// out = alpha left @ right, or out += it; out is contiguous along its rows.
struct RoundedProduct {
    int64_t rows;
    int64_t depth;
    int64_t columns;
    FloatMatrix left;   // [rows, depth]
    FloatMatrix right;  // [depth, columns]
    float alpha;
    bool add;
    float* out;
    int64_t out_stride;
};

// The memory that multiply_bfloat16 needs, in pairs of bfloat16.
constexpr int64_t kLeftPairs = int64_t{1} << 15, kRightPairs = int64_t{480} * 256;

// Who multiplies bfloat16: nobody, the kernel in bfloat16.cpp, or MKL.
enum class Bfloat16 { none, kernel, mkl };

// The fastest way of this machine, or the one that the environment variable SEEGERA_BFLOAT16 names when the library is
// loaded. One that the machine lacks, or an unknown name, counts as not given.
Bfloat16 bfloat16();

}  // namespace seegera

#ifdef SEEGERA_REGISTER

// MKL's product of two matrices of bfloat16 with a result of float32; null where torch has none. Only where torch may
// have it can a linker do without.
using ProductOfMkl = void(int layout, int transpose_left, int transpose_right, int rows, int columns, int depth,
                          float alpha, const uint16_t* left, int left_stride, const uint16_t* right, int right_stride,
                          float beta, float* out, int out_stride);
#if defined(__linux__) && defined(__x86_64__)
extern "C" ProductOfMkl cblas_gemm_bf16bf16f32 __attribute__((weak));
#else
constexpr ProductOfMkl* cblas_gemm_bf16bf16f32 = nullptr;
#endif

namespace seegera {

SEEGERA_FOR_EACH_ISA(
    // Only the set avx512 has it, and only on a processor with AVX512-BF16; elsewhere out is not written.
    void multiply_bfloat16(const RoundedProduct&, uint32_t* left_pairs, uint32_t* right_pairs);
    // Lines of `width` numbers rounded to bfloat16, and, where `rest` is not null, what is left over: then it says
    // whether all rounded numbers are finite.
    bool round_lines(const float* in, int64_t lines, int64_t width, int64_t stride, uint16_t* out, uint16_t* rest);)

}  // namespace seegera

#endif
