// log p(X | H W) for J samples, and its gradients for an upstream of one: the value [J], and the gradients of hidden
// H [n, J, h], of weight W and of log_var_weight V, the latter two sample by sample and feature by feature,
// [l, J, h]. float32 or float64. The outputs O = H W, n x l, are never stored as a whole: bernoulli and gaussian
// compute tiles of them (feature_likelihood_tiles.h), as does mse_relu, mse takes whichever is cheaper, tiles or sums
// of squares (feature_likelihood_squares.h).
#include "feature_likelihood.h"

#include "common/scale.h"
#include "feature_likelihood_squares.h"
#include "feature_likelihood_tiles.h"

#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "common/parallel.h"

namespace seegera {
namespace {

constexpr double kLogPi = 1.1447298858494002;
constexpr double kLogTwoPi = 1.8378770664093453;

// Whether the last two dimensions are a matrix that a product takes as it is, by rows or by columns.
bool is_plain(const Tensor& tensor) {
    const int64_t last = tensor.dim() - 1;
    return (tensor.stride(last) == 1 && tensor.stride(last - 1) >= tensor.size(last)) ||
           (tensor.stride(last - 1) == 1 && tensor.stride(last) >= tensor.size(last - 1));
}

// Whether a weight lies in memory as [l, J h].
bool is_by_feature(const Tensor& weight) {
    const int64_t last = weight.dim() - 1, width = weight.size(last - 1);
    return weight.stride(last - 1) == 1 &&
           (last == 1 || weight.size(0) == 1 || weight.stride(0) == 0 || weight.stride(0) == width);
}

template <typename T>
FeatureWeight<T> weight_of(const Tensor& tensor) {
    const int64_t last = tensor.dim() - 1;
    return {tensor.const_data_ptr<T>(), tensor.dim() == 3 ? tensor.stride(0) : 0, tensor.stride(last - 1),
            tensor.stride(last)};
}

using Outcome = std::tuple<Tensor, Tensor, Tensor, Tensor>;

template <typename T>
Outcome run(const Tensor& hidden, const Tensor& weight, const std::optional<Tensor>& log_var_weight,
            const Tensor& rowptr, const Tensor& col, const Tensor& values, const std::optional<Tensor>& rowptr_t,
            const std::optional<Tensor>& col_t, const std::optional<Tensor>& values_t, const Tensor& pos_weight,
            int64_t likelihood, WantedGradients wanted) {
    Features<T> p{};
    p.rows = hidden.size(0);
    p.samples = hidden.size(1);
    p.width = hidden.size(2);
    p.columns = weight.size(weight.dim() - 1);
    p.hidden = hidden.const_data_ptr<T>();
    p.row_stride = hidden.stride(0);
    p.sample_stride = hidden.stride(1);
    p.weight = weight_of<T>(weight);
    if (log_var_weight) {
        p.log_var_weight = weight_of<T>(*log_var_weight);
    }
    p.likelihood = likelihood;
    p.rowptr = rowptr.const_data_ptr<int64_t>();
    p.col = col.const_data_ptr<int64_t>();
    p.values = values.const_data_ptr<T>();
    p.nnz = col.numel();
    p.pos_weight = static_cast<T>(*pos_weight.const_data_ptr<double>());

    FeatureGradients gradients;
    std::vector<double> totals(p.samples);
    if (rowptr_t) {
        by_squares(p, {rowptr, col, values}, {*rowptr_t, *col_t, *values_t}, wanted, gradients, totals.data());
    } else {
        gradients.hidden = new_gradient(p, hidden, wanted.hidden, p.rows);
        gradients.weight = new_gradient(p, hidden, wanted.weight, p.columns);
        gradients.log_var = new_gradient(p, hidden, wanted.log_var, p.columns);
        p.hidden_gradient = wanted.hidden ? gradients.hidden.mutable_data_ptr<T>() : nullptr;
        p.weight_gradient = wanted.weight ? gradients.weight.mutable_data_ptr<T>() : nullptr;
        p.log_var_gradient = wanted.log_var ? gradients.log_var.mutable_data_ptr<T>() : nullptr;
        std::vector<int64_t> all(p.samples);
        std::iota(all.begin(), all.end(), 0);
        by_tiles(p, all, totals.data());
    }
    const double entries = static_cast<double>(p.rows) * static_cast<double>(p.columns);
    const bool mse = likelihood == kMse || likelihood == kMseRelu;
    const double constant = mse ? -0.5 * kLogPi : likelihood == kGaussian ? -0.5 * kLogTwoPi : 0.0;
    Tensor value = torch::stable::new_empty(hidden, {p.samples});
    for (int64_t j = 0; j < p.samples; ++j) {
        value.mutable_data_ptr<T>()[j] = static_cast<T>(totals[j] + constant * entries);
    }
    return {value, gradients.hidden, gradients.weight, gradients.log_var};
}

// With the transpose of X: mse by squares. Without: by tiles.
Outcome feature_likelihood(const Tensor& hidden, const Tensor& weight, const std::optional<Tensor>& log_var_weight,
                           const Tensor& rowptr, const Tensor& col, const Tensor& values,
                           const std::optional<Tensor>& rowptr_t, const std::optional<Tensor>& col_t,
                           const std::optional<Tensor>& values_t, const Tensor& pos_weight, int64_t likelihood,
                           int64_t precision, bool hidden_gradient, bool weight_gradient, bool log_var_gradient) {
    const bool squares = rowptr_t.has_value();
    // Squares cancel, and bfloat16 would leave too little.
    const ProductsAt at(squares ? static_cast<int64_t>(Precision::highest) : precision);
    // The sparse products need the lines of all samples side by side; the others only need contiguous lines.
    const bool whole_lines = hidden.stride(2) == 1 && hidden.stride(0) >= hidden.size(2) &&
                             (!squares || hidden.size(1) == 1 || hidden.stride(1) == hidden.size(2));
    const bool as_it_is =
        is_plain(weight) && (!squares || weight.stride(weight.dim() - 1) == 1 || is_by_feature(weight));
    const Tensor lines = whole_lines ? hidden : torch::stable::contiguous(hidden);
    const Tensor weights = as_it_is ? weight : torch::stable::contiguous(weight);
    const std::optional<Tensor> log_var = !log_var_weight             ? std::nullopt
                                          : is_plain(*log_var_weight) ? log_var_weight
                                                                      : torch::stable::contiguous(*log_var_weight);
    const WantedGradients wanted{hidden_gradient, weight_gradient, log_var_gradient};
    const auto run_as = hidden.scalar_type() == ScalarType::Double ? &run<double> : &run<float>;
    return run_as(lines, weights, log_var, rowptr, col, values, rowptr_t, col_t, values_t, pos_weight, likelihood,
                  wanted);
}

// factors [J] * gradient by features [l, J, h], as [J, h, l], or summed over the samples, [h, l].
template <typename T>
Tensor scaled_weight(const Tensor& gradient, const T* factors, bool shared) {
    const int64_t columns = gradient.size(0), samples = gradient.size(1), width = gradient.size(2);
    Tensor out = shared ? new_tensor(gradient, {width, columns}) : new_tensor(gradient, {samples, width, columns});
    const T* in = gradient.const_data_ptr<T>();
    T* data = out.mutable_data_ptr<T>();
    for_each_range(columns, transposed_rows(samples * width), [&](int64_t begin, int64_t end) {
        for (int64_t j = 0; j < (shared ? 1 : samples); ++j) {
            SEEGERA_CHOOSE(transpose_rows<T>)(in + j * width, samples * width, width, factors + j, shared ? samples : 1,
                                              width, begin, end, data + j * width * columns, columns);
        }
    });
    return out;
}

template <typename T>
std::tuple<Tensor, Tensor, Tensor> scaled_gradients(const Tensor& upstream, const FeatureGradients& gradients,
                                                    bool shared) {
    const T* factors = upstream.const_data_ptr<T>();
    return {scaled_samples(gradients.hidden, false, factors), scaled_weight(gradients.weight, factors, shared),
            scaled_weight(gradients.log_var, factors, true)};
}

std::tuple<Tensor, Tensor, Tensor> feature_likelihood_backward(const Tensor& upstream, const Tensor& hidden_gradient,
                                                               const Tensor& weight_gradient,
                                                               const Tensor& log_var_gradient, bool shared_weight) {
    const Tensor factors = torch::stable::contiguous(upstream);
    const FeatureGradients gradients{torch::stable::contiguous(hidden_gradient),
                                     torch::stable::contiguous(weight_gradient),
                                     torch::stable::contiguous(log_var_gradient)};
    return upstream.scalar_type() == ScalarType::Double ? scaled_gradients<double>(factors, gradients, shared_weight)
                                                        : scaled_gradients<float>(factors, gradients, shared_weight);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("feature_likelihood", TORCH_BOX(&seegera::feature_likelihood));
    m.impl("feature_likelihood_backward", TORCH_BOX(&seegera::feature_likelihood_backward));
}

#endif
