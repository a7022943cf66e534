// log p(A | Z) under p_ik = sigmoid(z_i . z_k) with its gradient for an upstream of one: value [J] and gradient [J, n,
// d] of z [n, J, d], float32 or float64. Over all pairs (link_likelihood_all_pairs.h), or over the links and drawn
// negatives (link_likelihood_sampled.h).
#include "link_likelihood.h"

#include "link_likelihood_all_pairs.h"
#include "link_likelihood_sampled.h"

#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "common/memory.h"
#include "common/scale.h"

namespace seegera {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <typename T>
std::tuple<Tensor, Tensor> run(const Tensor& z, const Tensor& rowptr, const Tensor& col, const Draws& draws,
                               double pos_weight, bool self_loops, int64_t negatives, bool with_gradient) {
    Links<T> p;
    p.nodes = z.size(0);
    p.samples = z.size(1);
    p.width = z.size(2);
    // A drawn row is gathered for all samples. All pairs take one sample after the other, in blocks of close rows: with
    // the rows of 8 samples between them they took 1.07 times as long at d = 64.
    const bool by_sample = negatives == 0;
    const Tensor ordered = torch::stable::contiguous(by_sample ? torch::stable::transpose(z, 0, 1) : z);
    p.z = ordered.const_data_ptr<T>();
    p.row_stride = by_sample ? p.width : p.samples * p.width;
    p.sample_stride = by_sample ? p.nodes * p.width : p.width;
    p.rowptr = rowptr.const_data_ptr<int64_t>();
    p.col = col.const_data_ptr<int64_t>();
    p.link_weight = pos_weight;
    p.self_weight = self_loops ? pos_weight : 0.0;
    Tensor gradient = new_tensor(z, {p.samples, with_gradient ? p.nodes : 0, p.width});
    p.gradient = with_gradient ? gradient.mutable_data_ptr<T>() : nullptr;

    std::vector<double> values(p.samples);
    if (negatives > 0) {
        sampled(p, draws, negatives, values.data());
    } else if (p.nodes > 0) {
        all_pairs(p, values.data());
    }
    Tensor value = torch::stable::new_empty(z, {p.samples});
    std::copy(values.begin(), values.end(), value.mutable_data_ptr<T>());
    return {value, gradient};
}

// negatives = 0: all pairs; gaps are not read. Where the gradient is not computed, it has no rows.
std::tuple<Tensor, Tensor> link_likelihood(const Tensor& z, const Tensor& rowptr, const Tensor& col, const Tensor& gaps,
                                           const Tensor& pos_weight, const Tensor& seed, bool self_loops,
                                           int64_t negatives, int64_t precision, bool with_gradient) {
    const ProductsAt at(precision);
    const Draws draws{*seed.const_data_ptr<int64_t>(), z.size(0), gaps.const_data_ptr<int64_t>(), gaps.numel(),
                      nullptr};
    const auto run_typed = z.scalar_type() == ScalarType::Double ? &run<double> : &run<float>;
    return run_typed(z, rowptr, col, draws, *pos_weight.const_data_ptr<double>(), self_loops, negatives, with_gradient);
}

template <typename T>
Tensor scale(const Tensor& gradient, const Tensor& upstream) {
    const Tensor unit = torch::stable::contiguous(gradient), factors = torch::stable::contiguous(upstream);
    return scaled_samples(unit, true, factors.const_data_ptr<T>());
}

Tensor link_likelihood_backward(const Tensor& gradient, const Tensor& upstream) {
    const auto scale_typed = gradient.scalar_type() == ScalarType::Double ? &scale<double> : &scale<float>;
    return scale_typed(gradient, upstream);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("link_likelihood", TORCH_BOX(&seegera::link_likelihood));
    m.impl("link_likelihood_backward", TORCH_BOX(&seegera::link_likelihood_backward));
}

#endif
