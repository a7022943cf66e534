// Gradients that a forward pass made for an upstream of one, times the upstream of each sample.
#pragma once

#include <cstdint>

#include "isa.h"

namespace seegera {

template <typename T>
struct ScaleSamples {
    const T* gradient;
    int64_t row_stride;
    int64_t sample_stride;
    const T* factors;  // [samples]
    int64_t samples;
    int64_t width;
    T* out;  // [rows, samples, width]
};

}  // namespace seegera

#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>

#include "memory.h"
#include "parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T>
                     void scale_samples(const ScaleSamples<T>&, int64_t row_begin, int64_t row_end);)

// out [rows, J, width] = factors [J] * gradient, which is contiguous: [rows, J, width], or [J, rows, width] where it
// is `by_sample`.
template <typename T>
torch::stable::Tensor scaled_samples(const torch::stable::Tensor& gradient, bool by_sample, const T* factors) {
    constexpr int64_t task_size = int64_t{1} << 16;
    const int64_t rows = gradient.size(by_sample ? 1 : 0), samples = gradient.size(by_sample ? 0 : 1);
    const int64_t width = gradient.size(2);
    torch::stable::Tensor out = new_tensor(gradient, {rows, samples, width});
    const ScaleSamples<T> p{gradient.const_data_ptr<T>(),
                            by_sample ? width : samples * width,
                            by_sample ? rows * width : width,
                            factors,
                            samples,
                            width,
                            out.mutable_data_ptr<T>()};
    for_each_range(rows, task_size / std::max<int64_t>(1, samples * width),
                   [&](int64_t begin, int64_t end) { SEEGERA_CHOOSE(scale_samples<T>)(p, begin, end); });
    return out;
}

}  // namespace seegera

#endif
