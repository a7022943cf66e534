// z [n, J, d] = mean + exp(log_var / 2) * normal, and the gradient of log_var. The normal numbers are addressed by
// seed, row, draw and column: backward draws them again, nothing is stored.
//
// Floor: forward reads mean and log_var and writes z, backward reads the gradient and log_var and writes one gradient.
// Per element a quarter of a Philox counter (five multiplications), and half of a logarithm, a square root, a sine and
// a cosine; per element of log_var one exponential. That arithmetic, not the memory, is what takes the time.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

// Strides in numbers; the last dimension of the inputs is contiguous, out is as a whole.
template <typename T>
struct Reparameterize {
    int64_t seed;
    int64_t num_draws;
    int64_t width;
    const T* values;  // mean, or in backward the upstream gradient
    int64_t row_stride;
    int64_t draw_stride;
    const T* log_var;
    int64_t log_var_row_stride;
    int64_t log_var_draw_stride;
    bool shared;  // one log_var for all draws
    T* out;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/philox.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
using Block = Vector<T, kVectorBytes>[kPhiloxVectors<T>];

// exp(log_var / 2) in the columns of a block, or its slope, which is 0 where log_var is out of its range.
template <bool Slope, typename T>
inline void deviations(const Reparameterize<T>& p, int64_t row, int64_t draw, int64_t column, Block<T>& deviation) {
    using V = Vector<T, kVectorBytes>;
    const T* source = p.log_var + row * p.log_var_row_stride + draw * p.log_var_draw_stride + column;
    for (int i = 0; i < kPhiloxVectors<T>; ++i) {
        const int64_t at = i * kLanes<V>;
        const V log_var = load_part<V>(source + at, p.width - column - at);
        const V value = exp(bounded_log_var(log_var) * T(0.5));
        deviation[i] = Slope ? keep<V>(in_range(log_var), value * T(0.5)) : value;
    }
}

template <typename T>
void sample_rows(const Reparameterize<T>& p, int64_t row_begin, int64_t row_end) {
    using V = Vector<T, kVectorBytes>;
    const PhiloxKey key(p.seed);
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t column = 0; column < p.width; column += kBlockColumns) {
            Block<T> deviation, normals;
            for (int64_t draw = 0; draw < p.num_draws; ++draw) {
                if (draw == 0 || !p.shared) {
                    deviations<false>(p, row, draw, column, deviation);
                }
                normal_block<T>(key, row, philox_draw(kNormalStream, draw), column / 4, normals);
                const T* mean = p.values + row * p.row_stride + draw * p.draw_stride + column;
                T* target = p.out + (row * p.num_draws + draw) * p.width + column;
                for (int i = 0; i < kPhiloxVectors<T>; ++i) {
                    const int64_t at = i * kLanes<V>, left = p.width - column - at;
                    store_part(target + at, deviation[i] * normals[i] + load_part<V>(mean + at, left), left);
                }
            }
        }
    }
}

// The gradient of log_var: gradient * normal * exp(log_var / 2) / 2, summed over the draws, in order, that share one.
template <typename T>
void sample_backward_rows(const Reparameterize<T>& p, int64_t row_begin, int64_t row_end) {
    using V = Vector<T, kVectorBytes>;
    const PhiloxKey key(p.seed);
    const int64_t out_draws = p.shared ? 1 : p.num_draws;
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t column = 0; column < p.width; column += kBlockColumns) {
            Block<T> deviation, normals, sum = {};
            for (int64_t draw = 0; draw < p.num_draws; ++draw) {
                normal_block<T>(key, row, philox_draw(kNormalStream, draw), column / 4, normals);
                const T* gradient = p.values + row * p.row_stride + draw * p.draw_stride + column;
                for (int i = 0; i < kPhiloxVectors<T>; ++i) {
                    const int64_t at = i * kLanes<V>;
                    sum[i] += normals[i] * load_part<V>(gradient + at, p.width - column - at);
                }
                if (p.shared && draw + 1 < p.num_draws) {
                    continue;
                }
                const int64_t variance = p.shared ? 0 : draw;
                deviations<true>(p, row, variance, column, deviation);
                T* target = p.out + (row * out_draws + variance) * p.width + column;
                for (int i = 0; i < kPhiloxVectors<T>; ++i) {
                    const int64_t at = i * kLanes<V>;
                    // Where the slope is 0, the sum may be infinite.
                    const V counted = keep<V>(deviation[i] != 0, sum[i]);
                    store_part(target + at, weighted(counted, deviation[i]), p.width - column - at);
                    sum[i] = V{};
                }
            }
        }
    }
}

template void sample_rows(const Reparameterize<float>&, int64_t, int64_t);
template void sample_rows(const Reparameterize<double>&, int64_t, int64_t);
template void sample_backward_rows(const Reparameterize<float>&, int64_t, int64_t);
template void sample_backward_rows(const Reparameterize<double>&, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "common/memory.h"
#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void sample_rows(const Reparameterize<T>&, int64_t, int64_t);
                     template <typename T> void sample_backward_rows(const Reparameterize<T>&, int64_t, int64_t);)

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Elements of a task.
constexpr int64_t kTaskSize = int64_t{1} << 14;

Tensor with_contiguous_lines(const Tensor& tensor) {
    return tensor.size(2) <= 1 || tensor.stride(2) == 1 ? tensor : torch::stable::contiguous(tensor);
}

template <typename T>
void run(bool backward, const Tensor& values, const Tensor& log_var, const Tensor& seed, Tensor& out) {
    Reparameterize<T> p;
    p.seed = seed.const_data_ptr<int64_t>()[0];
    p.num_draws = values.size(1);
    p.width = values.size(2);
    p.values = values.const_data_ptr<T>();
    p.row_stride = values.stride(0);
    p.draw_stride = values.stride(1);
    p.log_var = log_var.const_data_ptr<T>();
    p.log_var_row_stride = log_var.stride(0);
    p.log_var_draw_stride = log_var.stride(1);
    p.shared = log_var.size(1) == 1;
    p.out = out.mutable_data_ptr<T>();
    const auto run_rows = backward ? SEEGERA_CHOOSE(sample_backward_rows<T>) : SEEGERA_CHOOSE(sample_rows<T>);
    for_each_range(values.size(0), kTaskSize / std::max<int64_t>(1, p.num_draws * p.width),
                   [&](int64_t begin, int64_t end) { run_rows(p, begin, end); });
}

Tensor choose_type(bool backward, const Tensor& values, const Tensor& log_var, const Tensor& seed) {
    const Tensor& like = backward ? log_var : values;
    Tensor out = new_tensor(like, {like.size(0), like.size(1), like.size(2)});
    const Tensor lines = with_contiguous_lines(values), log_var_lines = with_contiguous_lines(log_var);
    if (values.scalar_type() == ScalarType::Double) {
        run<double>(backward, lines, log_var_lines, seed, out);
    } else {
        run<float>(backward, lines, log_var_lines, seed, out);
    }
    return out;
}

Tensor reparameterize(const Tensor& mean, const Tensor& log_var, const Tensor& seed) {
    return choose_type(false, mean, log_var, seed);
}

Tensor reparameterize_backward(const Tensor& gradient, const Tensor& log_var, const Tensor& seed) {
    return choose_type(true, gradient, log_var, seed);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("reparameterize", TORCH_BOX(&seegera::reparameterize));
    m.impl("reparameterize_backward", TORCH_BOX(&seegera::reparameterize_backward));
}

#endif
