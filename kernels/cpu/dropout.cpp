// out [n, S, d] = values * scale where word (row, draw, column) of the dropout stream has reached a threshold, else 0.
// The gradient is the same operation on the upstream gradient.
//
// Floor: one number read and one written per element, and a quarter of a Philox counter (five multiplications). On two
// cores with AVX-512 the counters take about half of the time of the copy, with AVX2 about as much as the copy.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

// Strides in numbers; a line of values is contiguous, and out is as a whole.
template <typename T>
struct Dropout {
    int64_t seed;
    int64_t threshold;
    T scale;
    int64_t num_draws;
    int64_t width;
    const T* values;
    int64_t row_stride;
    int64_t draw_stride;
    T* out;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/dropout.h"

namespace seegera {
namespace SEEGERA_ISA {

// Line: a (row, draw), counted draw by draw.
template <typename T>
void dropout_lines(const Dropout<T>& p, int64_t line_begin, int64_t line_end) {
    const PhiloxKey key(p.seed);
    const Event dropped(p.threshold);
    for (int64_t line = line_begin; line < line_end; ++line) {
        const int64_t row = line / p.num_draws, draw = line % p.num_draws;
        const T* source = p.values + row * p.row_stride + draw * p.draw_stride;
        drop_columns(key, dropped, p.scale, row, draw, 0, p.width, source, p.out + line * p.width);
    }
}

template void dropout_lines(const Dropout<float>&, int64_t, int64_t);
template void dropout_lines(const Dropout<double>&, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "common/memory.h"
#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void dropout_lines(const Dropout<T>&, int64_t, int64_t);)

namespace {

using torch::stable::Tensor;

// Elements of a task.
constexpr int64_t kTaskSize = int64_t{1} << 15;

template <typename T>
void drop(const Tensor& values, int64_t threshold, double scale, const Tensor& seed, Tensor& out) {
    Dropout<T> p;
    p.seed = seed.const_data_ptr<int64_t>()[0];
    p.threshold = threshold;
    p.scale = static_cast<T>(scale);
    p.num_draws = values.size(1);
    p.width = values.size(2);
    p.values = values.const_data_ptr<T>();
    p.row_stride = values.stride(0);
    p.draw_stride = values.stride(1);
    p.out = out.mutable_data_ptr<T>();
    const auto drop_task = SEEGERA_CHOOSE(dropout_lines<T>);
    for_each_range(out.size(0) * p.num_draws, kTaskSize / std::max<int64_t>(1, p.width),
                   [&](int64_t begin, int64_t end) { drop_task(p, begin, end); });
}

Tensor dropout(const Tensor& values, int64_t threshold, double scale, const Tensor& seed) {
    const bool contiguous_lines = values.size(2) <= 1 || values.stride(2) == 1;
    const Tensor lines = contiguous_lines ? values : torch::stable::contiguous(values);
    Tensor out = new_tensor(values, {values.size(0), values.size(1), values.size(2)});
    if (values.scalar_type() == torch::headeronly::ScalarType::Double) {
        drop<double>(lines, threshold, scale, seed, out);
    } else {
        drop<float>(lines, threshold, scale, seed, out);
    }
    return out;
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("dropout", TORCH_BOX(&seegera::dropout)); }

#endif
