// What the parts of top_links share: the problem, the pairs that may be among the best, and tiles of scores.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "common/score_tile.h"

namespace seegera {

// A pair that may be among the best. Its score is between low and high; once it is known, both are the score.
template <typename T>
struct Candidate {
    T low;
    T high;
    int64_t pair;  // first node * number of nodes + second node
};

// The rows of z [nodes, width], contiguous.
template <typename T>
struct EmbeddingRows {
    const T* z;
    int64_t nodes;
    int64_t width;

    const T* row(int64_t node) const { return z + node * width; }
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/vector.h"

namespace seegera {
namespace SEEGERA_ISA {

// One bit for each byte of a mask.
template <typename V>
inline uint64_t bytes_of(const V& mask) {
#if defined(__AVX512F__)
    return _mm512_movepi8_mask(bits_as<__m512i>(mask));
#elif defined(__AVX2__)
    return static_cast<uint32_t>(_mm256_movemask_epi8(bits_as<__m256i>(mask)));
#elif defined(__x86_64__)
    return static_cast<uint32_t>(_mm_movemask_epi8(bits_as<__m128i>(mask)));
#else
    uint64_t bytes = 0;
    for (int lane = 0; lane < static_cast<int>(sizeof(V) / sizeof(mask[0])); ++lane) {
        bytes |= static_cast<uint64_t>(mask[lane] != 0) << (lane * sizeof(mask[0]));
    }
    return bytes;
#endif
}

// The cells whose score is not below the bound of its row, or not below that of its column; both if it is NaN. There
// is a bound for each number of a padded row.
template <typename T>
int64_t cells_above(const ScoreTile<T>& tile, const T* row_bounds, const T* column_bounds, uint32_t* cells) {
    using V = Vector<T, kVectorBytes>;
    int64_t count = 0;
    for (int64_t r = 0; r < tile.rows; ++r) {
        const T* row = tile.scores + r * tile.stride;
        const V row_bound = splat<V>(row_bounds[r]);
        for (int64_t c = 0; c < tile.columns; c += kLanes<V>) {
            const V column_bound = load<V>(column_bounds + c);
            const V bound = select(less(row_bound, column_bound), row_bound, column_bound);
            uint64_t above = bytes_of(~less(load<V>(row + c), bound));
            while (above != 0) {
                const int64_t lane = __builtin_ctzll(above) / static_cast<int>(sizeof(T));
                above &= above - 1;
#if defined(__x86_64__)
                // All bytes of a lane have the same bit.
                above &= ~(((uint64_t{1} << sizeof(T)) - 1) << (lane * sizeof(T)));
#endif
                if (c + lane < tile.columns) {
                    cells[count++] = static_cast<uint32_t>(r << kCellBits | (c + lane));
                }
            }
        }
    }
    return count;
}

// The numbers in float64. GCC converts a vector of float32 to a full vector in two halves.
template <typename Wide, typename Narrow>
inline Wide widened(const Narrow& narrow) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Narrow) == 32 && sizeof(Wide) == 64) {
        return bits_as<Wide>(_mm512_maskz_cvtps_pd(0xff, bits_as<__m256>(narrow)));
    }
#elif defined(__AVX2__)
    if constexpr (sizeof(Narrow) == 16 && sizeof(Wide) == 32) {
        return bits_as<Wide>(_mm256_cvtps_pd(bits_as<__m128>(narrow)));
    }
#endif
    return __builtin_convertvector(narrow, Wide);
}

// The score of a pair in float64, from 32 partial sums with the elements 0, 32, 64 ... and so on. Products of float32
// numbers are exact there, so that all instruction sets give the same bits.
template <typename T>
double score_of(const T* left, const T* right, int64_t width) {
    using Wide = Vector<double, kVectorBytes>;
    using Narrow = Vector<T, sizeof(T) * kLanes<Wide>>;
    constexpr int64_t lanes = kLanes<Wide>, sums = 32 / lanes;
    Wide total[sums] = {};
    int64_t at = 0;
    for (; at + 32 <= width; at += 32) {
        for (int64_t s = 0; s < sums; ++s) {
            const int64_t from = at + s * lanes;
            total[s] = multiply_add(widened<Wide>(load<Narrow>(left + from)), widened<Wide>(load<Narrow>(right + from)),
                                    total[s]);
        }
    }
    for (int64_t s = 0; s < sums && at < width; ++s, at += lanes) {
        total[s] = multiply_add(widened<Wide>(load_part<Narrow>(left + at, width - at)),
                                widened<Wide>(load_part<Narrow>(right + at, width - at)), total[s]);
    }
    double all = 0;
    for (int64_t s = 0; s < sums; ++s) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
            all += total[s][lane];
        }
    }
    return all;
}

// Computes the scores of the candidates whose score is not known.
template <typename T>
void compute_scores(const EmbeddingRows<T>& rows, Candidate<T>* candidates, int64_t count) {
    for (int64_t c = 0; c < count; ++c) {
        Candidate<T>& candidate = candidates[c];
        if (candidate.low < candidate.high) {
            const int64_t i = candidate.pair / rows.nodes, j = candidate.pair % rows.nodes;
            candidate.low = candidate.high = static_cast<T>(score_of(rows.row(i), rows.row(j), rows.width));
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                                                        \
    template int64_t cells_above(const ScoreTile<T>&, const T*, const T*, uint32_t*); \
    template double score_of(const T*, const T*, int64_t);                            \
    template void compute_scores(const EmbeddingRows<T>&, Candidate<T>*, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> int64_t cells_above(const ScoreTile<T>&, const T*, const T*, uint32_t*);
                     template <typename T> double score_of(const T*, const T*, int64_t);
                     template <typename T> void compute_scores(const EmbeddingRows<T>&, Candidate<T>*, int64_t);)

}  // namespace seegera

#endif
