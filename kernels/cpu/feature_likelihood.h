// What the forms of feature_likelihood share: the problem, the memory of its gradients, and the transposition between
// weights, [h, l], and lines by feature, [l, h].
#pragma once

#include <cstdint>

#include "common/isa.h"

namespace seegera {

// As numbered by KERNELS in seegera_fast/reference/feature_likelihood.py.
enum FeatureLikelihood : int64_t { kBernoulli, kMse, kGaussian, kMseRelu };

}  // namespace seegera

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

// out [columns, rows] = the sum over the samples of factors[sample] * in [rows, samples, columns], transposed, for the
// rows [begin, end). A sample whose factor is 0 may be infinite or NaN. Strides in numbers: of in from row to row and
// from sample to sample.
template <typename T>
void transpose_rows(const T* in, int64_t row_stride, int64_t sample_stride, const T* factors, int64_t samples,
                    int64_t columns, int64_t begin, int64_t end, T* out, int64_t out_stride) {
    constexpr int64_t block = 16;
    T held[block][block];
    for (int64_t row = begin; row < end; row += block) {
        const int64_t rows = end - row < block ? end - row : block;
        for (int64_t column = 0; column < columns; column += block) {
            const int64_t width = columns - column < block ? columns - column : block;
            for (int64_t r = 0; r < rows; ++r) {
                const T* source = in + (row + r) * row_stride + column;
                for (int64_t c = 0; c < width; ++c) {
                    held[r][c] = factors[0] == 0 ? T(0) : factors[0] * source[c];
                }
                for (int64_t j = 1; j < samples; ++j) {
                    for (int64_t c = 0; c < width; ++c) {
                        held[r][c] += factors[j] == 0 ? T(0) : factors[j] * source[j * sample_stride + c];
                    }
                }
            }
            for (int64_t c = 0; c < width; ++c) {
                T* target = out + (column + c) * out_stride + row;
                for (int64_t r = 0; r < rows; ++r) {
                    target[r] = held[r][c];
                }
            }
        }
    }
}

#define SEEGERA_INSTANTIATE(T) \
    template void transpose_rows(const T*, int64_t, int64_t, const T*, int64_t, int64_t, int64_t, int64_t, T*, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>

#include "common/layer.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void transpose_rows(const T*, int64_t, int64_t, const T*, int64_t, int64_t,
                                                               int64_t, int64_t, T*, int64_t);)

// Elements of a task.
constexpr int64_t kTaskSize = int64_t{1} << 16;

// Rows of `width` numbers that one task transposes: whole cache lines of the result.
inline int64_t transposed_rows(int64_t width) {
    return std::max(kUnit, kTaskSize / std::max<int64_t>(1, width) / kUnit * kUnit);
}

// [h, l], or [J, h, l] with a stride from sample to sample.
template <typename T>
struct FeatureWeight {
    const T* data;
    int64_t sample_stride;  // 0: shared
    int64_t row_stride;
    int64_t column_stride;
};

template <typename T>
struct Features {
    const T* hidden;
    int64_t rows;
    int64_t samples;
    int64_t width;
    int64_t columns;
    int64_t row_stride;
    int64_t sample_stride;
    FeatureWeight<T> weight;
    FeatureWeight<T> log_var_weight;
    int64_t likelihood;
    const int64_t* rowptr;
    const int64_t* col;
    const T* values;
    int64_t nnz;
    T pos_weight;
    // Gradients, null where they are not computed: [n, J, h], [l, J, h], [l, J, h].
    T* hidden_gradient;
    T* weight_gradient;
    T* log_var_gradient;

    const T* hidden_at(int64_t sample, int64_t row) const { return hidden + row * row_stride + sample * sample_stride; }
    // Index of a line of a gradient [rows, J, h].
    int64_t line(int64_t sample, int64_t row) const { return (row * samples + sample) * width; }
    int64_t line_stride() const { return samples * width; }
};

// Which gradients to compute.
struct WantedGradients {
    bool hidden;
    bool weight;
    bool log_var;
};

// By rows, and by features: [n, J, h], [l, J, h], [l, J, h].
struct FeatureGradients {
    Tensor hidden;
    Tensor weight;
    Tensor log_var;
};

// [rows, J, h], or [0, J, h] where the gradient is not computed.
template <typename T>
Tensor new_gradient(const Features<T>& p, const Tensor& like, bool wanted, int64_t rows) {
    const std::array<int64_t, 3> sizes{wanted ? rows : 0, p.samples, p.width};
    if (p.rows == 0 || p.columns == 0) {
        // No tile writes to it, so it is set to zero here.
        return torch::stable::new_zeros(like, sizes);
    }
    return new_tensor(like, sizes);
}

}  // namespace seegera

#endif
