// Products in bfloat16: the kernel for AVX512-BF16, rounding for MKL's, and which of the two is used.
//
// The kernel: VDPBF16PS adds the products of two pairs of bfloat16 to each float32 of a vector. A group of 8 rows and
// 48 columns of the result stays in 24 registers while the depth is passed; per pair of the depth these take 3 loads of
// the right side and 8 broadcasts of the left one. Both sides are rounded and put in order before, in blocks that stay
// in the caches.
//
// Floor: rows depth columns / 32 cycles on a processor with one 512-bit VDPBF16PS a cycle, twice the rate of float32.
// Measured on an AMD EPYC of the fourth generation: 1.05 to 1.25 times it.
#include "bfloat16.h"

#ifndef SEEGERA_REGISTER

#include "vector.h"

namespace seegera {
namespace SEEGERA_ISA {

// The nearest bfloat16, of two equally near ones the even one. A NaN stays one.
inline uint32_t nearest_bfloat16(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    return (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
}

bool round_lines(const float* in, int64_t lines, int64_t width, int64_t stride, uint16_t* out, uint16_t* rest) {
    uint32_t infinite = 0;
    for (int64_t line = 0; line < lines; ++line, in += stride, out += width) {
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
            out[i] = static_cast<uint16_t>(nearest_bfloat16(bits_as<uint32_t>(in[i])));
        }
        if (rest == nullptr) {
            continue;
        }
#pragma omp simd reduction(| : infinite)
        for (int64_t i = 0; i < width; ++i) {
            const uint32_t whole = static_cast<uint32_t>(out[i]) << 16;
            infinite |= static_cast<uint32_t>((whole & 0x7f800000) == 0x7f800000);
            rest[i] = static_cast<uint16_t>(nearest_bfloat16(bits_as<uint32_t>(in[i] - bits_as<float>(whole))));
        }
        rest += width;
    }
    return infinite == 0;
}

#if defined(__AVX512F__)

#define SEEGERA_BFLOAT16 __attribute__((target("avx512bf16")))

constexpr int kGroupRows = 8, kGroupVectors = 3, kWords = 16, kPanel = kGroupVectors * kWords;
constexpr int64_t kDepth = 512, kPairs = kDepth / 2;
constexpr int64_t kBlockRows = kLeftPairs / kPairs, kBlockColumns = kRightPairs / kPairs;

inline __mmask16 first_words(int64_t count) {
    return count >= kWords ? 0xffff : static_cast<__mmask16>((1u << count) - 1);
}

// 16 pairs of bfloat16, the first one of a pair in the lower half of its word. Operators and shuffles instead of
// intrinsics: in those GCC 12 sees uses of what is not set.
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));

// Pairs (in[0], in[1]), (in[2], in[3]), ... of 2 `count` numbers that lie one after the other; zeros beyond `count`.
SEEGERA_BFLOAT16 inline Words pairs_along(const float* in, int64_t count) {
    const int64_t rest = count - kWords;
    const __m512 low = _mm512_maskz_loadu_ps(first_words(count), in);
    const __m512 high = rest > 0 ? _mm512_maskz_loadu_ps(first_words(rest), in + kWords) : _mm512_setzero_ps();
    return (Words)_mm512_cvtne2ps_pbh(high, low);
}

// Pairs (first[i], second[i]) of `count` numbers; without a second line its numbers are zeros.
SEEGERA_BFLOAT16 inline Words pairs_across(const float* first, const float* second, int64_t count) {
    const __mmask16 mask = first_words(count);
    const __m512 low = _mm512_maskz_loadu_ps(mask, first);
    const __m512 high = second == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, second);
    return __builtin_convertvector((Halves)_mm512_cvtneps_pbh(high), Words) << 16 |
           __builtin_convertvector((Halves)_mm512_cvtneps_pbh(low), Words);
}

// Of groups of four words: the first or last two of `a` and `b` in turn.
inline Words low_words(Words a, Words b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
inline Words high_words(Words a, Words b) {
    return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
// The same in pairs of words.
inline Words low_pairs(Words a, Words b) {
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
inline Words high_pairs(Words a, Words b) {
    return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
// The groups of four with even or odd numbers, of `a` and then of `b`.
inline Words even_groups(Words a, Words b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
inline Words odd_groups(Words a, Words b) {
    return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

// The transpose of 16 x 16 words.
inline void transpose_words(Words (&lines)[kWords]) {
    Words step[kWords];
    for (int i = 0; i < kWords; i += 2) {
        step[i] = low_words(lines[i], lines[i + 1]);
        step[i + 1] = high_words(lines[i], lines[i + 1]);
    }
    for (int i = 0; i < kWords; i += 4) {
        for (int k = 0; k < 2; ++k) {
            lines[i + 2 * k] = low_pairs(step[i + k], step[i + k + 2]);
            lines[i + 2 * k + 1] = high_pairs(step[i + k], step[i + k + 2]);
        }
    }
    for (int i = 0; i < 4; ++i) {
        step[i] = even_groups(lines[i], lines[i + 4]);
        step[i + 4] = odd_groups(lines[i], lines[i + 4]);
        step[i + 8] = even_groups(lines[i + 8], lines[i + 12]);
        step[i + 12] = odd_groups(lines[i + 8], lines[i + 12]);
    }
    for (int i = 0; i < 4; ++i) {
        lines[i] = even_groups(step[i], step[i + 8]);
        lines[i + 8] = odd_groups(step[i], step[i + 8]);
        lines[i + 4] = even_groups(step[i + 4], step[i + 12]);
        lines[i + 12] = odd_groups(step[i + 4], step[i + 12]);
    }
}

// Where the pairs of a block of the left side lie.
struct LeftBlock {
    const uint32_t* pairs;
    int64_t row_stride;
    int64_t pair_stride;
};

SEEGERA_BFLOAT16 LeftBlock round_left(const FloatMatrix& m, int64_t rows, int64_t depth, uint32_t* out) {
    const int64_t pairs = (depth + 1) / 2;
    if (m.column_stride == 1) {
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t pair = 0; pair < pairs; pair += kWords) {
                const Words words = pairs_along(m.data + row * m.row_stride + 2 * pair, depth - 2 * pair);
                _mm512_mask_storeu_epi32(out + row * pairs + pair, first_words(pairs - pair), (__m512i)words);
            }
        }
        return {out, pairs, 1};
    }
    for (int64_t pair = 0; pair < pairs; ++pair) {
        const float* first = m.data + 2 * pair * m.column_stride;
        const float* second = 2 * pair + 1 < depth ? first + m.column_stride : nullptr;
        for (int64_t row = 0; row < rows; row += kWords) {
            const Words words = pairs_across(first + row, second == nullptr ? nullptr : second + row, rows - row);
            _mm512_mask_storeu_epi32(out + pair * rows + row, first_words(rows - row), (__m512i)words);
        }
    }
    return {out, 1, rows};
}

// Panels of kPanel columns, each pair by pair.
SEEGERA_BFLOAT16 void round_right(const FloatMatrix& m, int64_t depth, int64_t columns, uint32_t* out) {
    const int64_t pairs = (depth + 1) / 2;
    for (int64_t column = 0; column < columns; column += kWords) {
        const int64_t count = columns - column;
        uint32_t* target = out + column / kPanel * kPanel * pairs + column % kPanel;
        if (m.column_stride == 1) {
            const float* source = m.data + column;
            for (int64_t pair = 0; pair < pairs; ++pair) {
                const float* first = source + 2 * pair * m.row_stride;
                const float* second = 2 * pair + 1 < depth ? first + m.row_stride : nullptr;
                store(target + pair * kPanel, pairs_across(first, second, count));
            }
            continue;
        }
        for (int64_t pair = 0; pair < pairs; pair += kWords) {
            Words lines[kWords];
            for (int i = 0; i < kWords; ++i) {
                lines[i] = i < count ? pairs_along(m.data + (column + i) * m.column_stride + 2 * pair, depth - 2 * pair)
                                     : Words{};
            }
            transpose_words(lines);
            for (int64_t i = 0; i < kWords && pair + i < pairs; ++i) {
                store(target + (pair + i) * kPanel, lines[i]);
            }
        }
    }
}

template <int Rows, int Vectors>
SEEGERA_BFLOAT16 inline void multiply_group(const LeftBlock& left, const uint32_t* right, int64_t pairs, float alpha,
                                            bool add, float* out, int64_t out_stride, int64_t columns) {
    __m512 sums[Rows][Vectors];
    for (int r = 0; r < Rows; ++r) {
        for (int v = 0; v < Vectors; ++v) {
            sums[r][v] = _mm512_setzero_ps();
        }
    }
    const uint32_t* words = left.pairs;
    for (int64_t pair = 0; pair < pairs; ++pair, words += left.pair_stride, right += kPanel) {
        __m512bh others[Vectors];
        for (int v = 0; v < Vectors; ++v) {
            others[v] = (__m512bh)_mm512_loadu_si512(right + v * kWords);
        }
        for (int r = 0; r < Rows; ++r) {
            const __m512bh own = (__m512bh)_mm512_set1_epi32(static_cast<int>(words[r * left.row_stride]));
            for (int v = 0; v < Vectors; ++v) {
                sums[r][v] = _mm512_dpbf16_ps(sums[r][v], own, others[v]);
            }
        }
    }
    for (int r = 0; r < Rows; ++r) {
        for (int v = 0; v < Vectors; ++v) {
            float* target = out + r * out_stride + v * kWords;
            const __mmask16 mask = first_words(columns - v * kWords);
            const __m512 before = add ? _mm512_maskz_loadu_ps(mask, target) : _mm512_setzero_ps();
            _mm512_mask_storeu_ps(target, mask, _mm512_fmadd_ps(_mm512_set1_ps(alpha), sums[r][v], before));
        }
    }
}

using Group = void (*)(const LeftBlock&, const uint32_t*, int64_t, float, bool, float*, int64_t, int64_t);

#define SEEGERA_GROUPS(rows) {multiply_group<rows, 1>, multiply_group<rows, 2>, multiply_group<rows, 3>}
constexpr Group kGroups[kGroupRows][kGroupVectors] = {SEEGERA_GROUPS(1), SEEGERA_GROUPS(2), SEEGERA_GROUPS(3),
                                                      SEEGERA_GROUPS(4), SEEGERA_GROUPS(5), SEEGERA_GROUPS(6),
                                                      SEEGERA_GROUPS(7), SEEGERA_GROUPS(8)};
#undef SEEGERA_GROUPS

inline int64_t smaller(int64_t value, int64_t limit) { return value < limit ? value : limit; }

void multiply_bfloat16(const RoundedProduct& p, uint32_t* left_pairs, uint32_t* right_pairs) {
    for (int64_t from = 0; from < p.depth || from == 0; from += kDepth) {
        const int64_t depth = smaller(p.depth - from, kDepth), pairs = (depth + 1) / 2;
        const bool add = p.add || from > 0;
        for (int64_t column = 0; column < p.columns; column += kBlockColumns) {
            const int64_t columns = smaller(p.columns - column, kBlockColumns);
            const FloatMatrix& r = p.right;
            round_right({r.data + from * r.row_stride + column * r.column_stride, r.row_stride, r.column_stride}, depth,
                        columns, right_pairs);
            for (int64_t row = 0; row < p.rows; row += kBlockRows) {
                const int64_t rows = smaller(p.rows - row, kBlockRows);
                const FloatMatrix& l = p.left;
                const LeftBlock left =
                    round_left({l.data + row * l.row_stride + from * l.column_stride, l.row_stride, l.column_stride},
                               rows, depth, left_pairs);
                for (int64_t panel = 0; panel < columns; panel += kPanel) {
                    const int64_t width = smaller(columns - panel, kPanel);
                    for (int64_t group = 0; group < rows; group += kGroupRows) {
                        const int64_t height = smaller(rows - group, kGroupRows);
                        kGroups[height - 1][(width - 1) / kWords](
                            {left.pairs + group * left.row_stride, left.row_stride, left.pair_stride},
                            right_pairs + panel * pairs, pairs, p.alpha, add,
                            p.out + (row + group) * p.out_stride + column + panel, p.out_stride, width);
                    }
                }
            }
        }
    }
}

#undef SEEGERA_BFLOAT16

#else

void multiply_bfloat16(const RoundedProduct&, uint32_t*, uint32_t*) {}

#endif

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace seegera {
namespace {

struct Offered {
    bool kernel = false;
    bool mkl = false;
    bool amx = false;
};

#if defined(__x86_64__)
// Whether the system keeps AMX's registers when it changes between threads; without that nobody may use them.
bool keeps_tiles() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) {
        return false;
    }
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a >> 17 & 3) == 3;
}
#endif

Offered offered() {
    Offered found;
    found.mkl = cblas_gemm_bf16bf16f32 != nullptr;
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (isa() == Isa::avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        const unsigned leaves = a;
        found.amx = (d >> 22 & 1) && (d >> 24 & 1) && keeps_tiles();
        found.kernel = leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
    }
#endif
    return found;
}

// MKL uses AMX, which is several times as fast as the kernel. Without AMX it takes as long as for float32, or longer.
Bfloat16 wanted_or_best() {
    const Offered found = offered();
    const char* name = std::getenv("SEEGERA_BFLOAT16");
    if (name != nullptr) {
        if (std::strcmp(name, "none") == 0) {
            return Bfloat16::none;
        }
        if (std::strcmp(name, "kernel") == 0 && found.kernel) {
            return Bfloat16::kernel;
        }
        if (std::strcmp(name, "mkl") == 0 && found.mkl) {
            return Bfloat16::mkl;
        }
    }
    return found.amx && found.mkl ? Bfloat16::mkl : found.kernel ? Bfloat16::kernel : Bfloat16::none;
}

}  // namespace

Bfloat16 bfloat16() {
    static const Bfloat16 chosen = wanted_or_best();
    return chosen;
}

}  // namespace seegera

// "none", "kernel" or "mkl": which precisions are fast, for the operations, tests and `seegera-fast info`.
extern "C" __attribute__((visibility("default"))) const char* seegera_bfloat16() {
    switch (seegera::bfloat16()) {
        case seegera::Bfloat16::mkl:
            return "mkl";
        case seegera::Bfloat16::kernel:
            return "kernel";
        default:
            return "none";
    }
}

#endif
