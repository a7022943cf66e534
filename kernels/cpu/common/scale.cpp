// Gradients for an upstream of one, times the upstream of each sample.
#ifndef SEEGERA_REGISTER

#include "scale.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
void scale_samples(const ScaleSamples<T>& p, int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t j = 0; j < p.samples; ++j) {
            const T* source = p.gradient + row * p.row_stride + j * p.sample_stride;
            T* target = p.out + (row * p.samples + j) * p.width;
            const T factor = p.factors[j];
            // The gradient may be infinite or NaN where the factor is 0.
#pragma omp simd
            for (int64_t c = 0; c < p.width; ++c) {
                target[c] = factor == 0 ? T(0) : factor * source[c];
            }
        }
    }
}

template void scale_samples(const ScaleSamples<float>&, int64_t, int64_t);
template void scale_samples(const ScaleSamples<double>&, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#endif
