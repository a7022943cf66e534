// out [n, S, c] = 1 where word (row, draw, column) of the noise stream is below a threshold, else 0.
//
// Floor: n S ceil(c / 4) Philox counters of ten rounds, two multiplications each; n S c numbers written. The noise is
// narrow (c = 5), so the lanes of a vector are rows. In training the fused kernels draw the same bits themselves.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

template <typename T>
struct DrawNoise {
    int64_t seed;
    int64_t threshold;
    int64_t num_draws;
    int64_t noise_dim;
    T* out;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/philox.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
void draw_noise_rows(const DrawNoise<T>& p, int64_t row_begin, int64_t row_end) {
    const PhiloxKey key(p.seed);
    const Event one(p.threshold);
    for (int64_t row = row_begin; row < row_end; row += kCounters) {
        const int64_t rows = kCounters < row_end - row ? kCounters : row_end - row;
        for (int64_t draw = 0; draw < p.num_draws; ++draw) {
            for (int64_t column = 0; column < p.noise_dim; column += 4) {
                Words words[4];
                philox_rows(key, row, philox_draw(kNoiseStream, draw), column / 4, words);
                const int64_t columns = p.noise_dim - column < 4 ? p.noise_dim - column : 4;
                T* target = p.out + (row * p.num_draws + draw) * p.noise_dim + column;
                for (int64_t i = 0; i < rows; ++i, target += p.num_draws * p.noise_dim) {
                    for (int64_t w = 0; w < columns; ++w) {
                        target[w] = one.happens(static_cast<uint32_t>(words[w][i])) ? T(1) : T(0);
                    }
                }
            }
        }
    }
}

template void draw_noise_rows(const DrawNoise<float>&, int64_t, int64_t);
template void draw_noise_rows(const DrawNoise<double>&, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>

#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void draw_noise_rows(const DrawNoise<T>&, int64_t, int64_t);)

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Numbers of a task.
constexpr int64_t kTaskSize = int64_t{1} << 15;

template <typename T>
void draw(const Tensor& seed, int64_t threshold, Tensor& out) {
    const DrawNoise<T> p{seed.const_data_ptr<int64_t>()[0], threshold, out.size(1), out.size(2),
                         out.mutable_data_ptr<T>()};
    const auto draw_rows = SEEGERA_CHOOSE(draw_noise_rows<T>);
    for_each_range(out.size(0), kTaskSize / std::max<int64_t>(1, p.num_draws * p.noise_dim),
                   [&](int64_t begin, int64_t end) { draw_rows(p, begin, end); });
}

Tensor draw_noise(const Tensor& seed, int64_t num_rows, int64_t num_draws, int64_t noise_dim, int64_t threshold,
                  ScalarType dtype) {
    Tensor out = torch::stable::new_empty(seed, {num_rows, num_draws, noise_dim}, dtype);
    if (dtype == ScalarType::Double) {
        draw<double>(seed, threshold, out);
    } else {
        draw<float>(seed, threshold, out);
    }
    return out;
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("draw_noise", TORCH_BOX(&seegera::draw_noise)); }

#endif
