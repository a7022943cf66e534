// The terms of log p(X | O) over a tile of outputs O, and their slopes, which overwrite the outputs.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "feature_likelihood.h"

namespace seegera {

template <typename T>
struct FeatureTile {
    int64_t likelihood;
    int64_t rows;
    int64_t columns;
    int64_t stride;  // columns, up to a multiple of a vector
    T* outputs;      // in: o; out: the slope of log p in o
    T* log_vars;     // gaussian: in: log variance; out: the slope of log p in it
    bool with_slopes;
    const int64_t* rowptr;  // of the tile's first row
    const int64_t* col;
    const T* values;
    int64_t first_column;
    T* target;  // buffer for a row of X; zeros before and after
    T pos_weight;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/math.h"

namespace seegera {
namespace SEEGERA_ISA {

// For each likelihood: the number that pads a row of outputs to whole vectors, and whose term is zero where x is zero;
// the terms of a vector of entries, up to a factor and a constant; and the slopes, which overwrite the outputs.
template <typename T>
struct BernoulliTerms {
    typedef Vector<T, kVectorBytes> V;
    static constexpr T kFill =
        -(sizeof(T) == sizeof(float) ? static_cast<T>(__FLT_MAX__) : static_cast<T>(__DBL_MAX__));
    static constexpr double kFactor = -1;
    T pos_weight;

    // pos_weight x softplus(-o) + (1 - x) softplus(o), from one exponential: softplus(o) = max(o, 0) + softplus(-|o|).
    V operator()(V x, V& output, V&) const {
        V rest, smaller;
        softplus_sigmoid(negative_magnitude(output), rest, smaller);
        const V ones = x * pos_weight, zeros = 1 - x;
        const V distance = magnitude(output);
        const Mask<V> negative = less(output, V{});
        const V above = keep<V>(~negative, distance), below = keep<V>(negative, distance);
        const V larger = 1 - smaller;
        const V slope = ones * select(negative, larger, smaller) - zeros * select(negative, smaller, larger);
        // An output may be infinite, or no number, and its weight 0.
        const V terms = weighted(ones, below + rest) + weighted(zeros, above + rest);
        output = slope;
        return terms;
    }
};

// Rectified: of max(o, 0), whose slope is 0 where o is 0. A NaN stays one.
template <typename T, bool Rectified>
struct MseTerms {
    typedef Vector<T, kVectorBytes> V;
    static constexpr T kFill = 0;
    static constexpr double kFactor = -1;

    V operator()(V x, V& output, V&) const {
        if constexpr (Rectified) {
            const Mask<V> passes = ~less_equal(output, V{});
            const V residual = x - keep<V>(passes, output);
            output = keep<V>(passes, residual + residual);
            return residual * residual;
        } else {
            const V residual = x - output;
            output = residual + residual;
            return residual * residual;
        }
    }
};

template <typename T>
struct GaussianTerms {
    typedef Vector<T, kVectorBytes> V;
    static constexpr T kFill = 0;
    static constexpr double kFactor = -0.5;

    V operator()(V x, V& output, V& log_var) const {
        const V bounded = bounded_log_var(log_var);
        const V deviation = inverse_deviation(bounded);
        const V difference = (x - output) * deviation;
        const V square = difference * difference;
        const V terms = square + bounded;
        output = difference * deviation;
        log_var = keep<V>(in_range(log_var), (square - 1) * T(0.5));
        return terms;
    }
};

template <typename T, bool WithLogVar, typename Terms>
double sum_terms(const FeatureTile<T>& tile, const Terms& terms) {
    typedef Vector<T, kVectorBytes> V;
    constexpr int64_t lanes = kLanes<V>;
    double total = 0;
    for (int64_t row = 0; row < tile.rows; ++row) {
        // The row's entries from the tile's first column on, by bisection.
        int64_t begin = tile.rowptr[row];
        for (int64_t end = tile.rowptr[row + 1]; begin < end;) {
            const int64_t middle = begin + (end - begin) / 2;
            if (tile.col[middle] < tile.first_column) {
                begin = middle + 1;
            } else {
                end = middle;
            }
        }
        int64_t last = begin;
        for (; last < tile.rowptr[row + 1] && tile.col[last] < tile.first_column + tile.columns; ++last) {
            tile.target[tile.col[last] - tile.first_column] = tile.values[last];
        }
        T* outputs = tile.outputs + row * tile.stride;
        T* log_vars = WithLogVar ? tile.log_vars + row * tile.stride : nullptr;
        for (int64_t c = tile.columns; c % lanes != 0; ++c) {
            outputs[c] = Terms::kFill;
            if (WithLogVar) {
                log_vars[c] = 0;
            }
        }
        V sum{};
        for (int64_t c = 0; c < tile.columns; c += lanes) {
            V output = load<V>(outputs + c), log_var{};
            if (WithLogVar) {
                log_var = load<V>(log_vars + c);
            }
            sum += terms(load<V>(tile.target + c), output, log_var);
            if (tile.with_slopes) {
                store(outputs + c, output);
                if (WithLogVar) {
                    store(log_vars + c, log_var);
                }
            }
        }
        total += horizontal_sum_double(sum);
        for (int64_t k = begin; k < last; ++k) {
            tile.target[tile.col[k] - tile.first_column] = 0;
        }
    }
    return Terms::kFactor * total;
}

// The sum of log p over a tile, without the constants; slopes overwrite the outputs where gradients are computed.
template <typename T>
double score_tile(const FeatureTile<T>& tile) {
    switch (tile.likelihood) {
        case kMse:
            return sum_terms<T, false>(tile, MseTerms<T, false>{});
        case kMseRelu:
            return sum_terms<T, false>(tile, MseTerms<T, true>{});
        case kGaussian:
            return sum_terms<T, true>(tile, GaussianTerms<T>{});
        default:
            return sum_terms<T, false>(tile, BernoulliTerms<T>{tile.pos_weight});
    }
}

// out = the sum of `count` parts of which each begins `part_stride` after the one before; out may be the first part.
template <typename T>
void sum_parts(const T* parts, int64_t part_stride, int64_t count, int64_t begin, int64_t end, T* out) {
    for (int64_t part = 1; part < count; ++part) {
        const T* sum = part == 1 ? parts : out;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
            out[i] = sum[i] + parts[part * part_stride + i];
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                         \
    template double score_tile(const FeatureTile<T>&); \
    template void sum_parts(const T*, int64_t, int64_t, int64_t, int64_t, T*);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> double score_tile(const FeatureTile<T>&);
                     template <typename T> void sum_parts(const T*, int64_t, int64_t, int64_t, int64_t, T*);)

}  // namespace seegera

#endif
