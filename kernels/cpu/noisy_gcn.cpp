// out [n, S, h] = activation(A dropout([X | eps_s]) W + b) for S draws of the noise, and the gradients of W's two parts
// and b. X is by rows, or in full (the dense layout).
//
// [X | eps] W = X W_x + eps W_e is never joined. Without dropout (noisy_gcn_shared.h) the draws share X's products,
// forward and backward: the gradient of W_x is X^T (A^T sum_s G_s). With dropout (noisy_gcn_dropped.h) X differs from
// draw to draw.
//
// Floor, without dropout: 2 nnz(X) h operations, or 2 n l h of a dense X, and 2 nnz(A) h, once for all draws, forward
// and again backward; out written once, and read again in backward with its gradient. With dropout, X costs S times as
// much, less what is dropped, and A works on [n, S, h].
#include "noisy_gcn.h"

#include "noisy_gcn_dropped.h"
#include "noisy_gcn_shared.h"

#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>

#include <tuple>

namespace seegera {
namespace {

template <typename T>
Tensor forward(const NoisyLayer& layer, const Tensor& weight, const Tensor& noise_weight, const Optional& bias) {
    Tensor out = new_tensor(weight, {layer.rows(), layer.num_draws, layer.width});
    const Finish<T> finish{bias ? bias->const_data_ptr<T>() : nullptr, layer.activation};
    (layer.dropping.on() ? dropped_forward<T> : shared_forward<T>)(layer, weight, noise_weight, finish, out);
    return out;
}

std::optional<Operand> operand(const Optional& rowptr, const Optional& col, const Optional& values) {
    return rowptr ? std::optional(Operand{*rowptr, *col, *values}) : std::nullopt;
}

// The transposes serve the backward pass.
Tensor noisy_gcn(const Optional& rowptr, const Optional& col, const Optional& values, const Optional&, const Optional&,
                 const Optional&, const Tensor& x_rowptr, const Tensor& x_col, const Tensor& x_values, const Tensor&,
                 const Tensor&, const Tensor&, const Tensor& weight, const Tensor& noise_weight, const Optional& bias,
                 int64_t num_draws, const Tensor& seed, int64_t noise_threshold, int64_t threshold, double scale,
                 int64_t activation, int64_t precision) {
    const ProductsAt at(precision);
    const NoisyLayer layer{operand(rowptr, col, values),
                           {x_rowptr, x_col, x_values},
                           weight.size(0),
                           weight.size(1),
                           num_draws,
                           noise_weight.size(0),
                           noise_threshold,
                           {seed.const_data_ptr<int64_t>()[0], threshold, scale},
                           static_cast<Activation>(activation)};
    const Tensor features = torch::stable::contiguous(weight), noise = torch::stable::contiguous(noise_weight);
    const Optional row = bias ? Optional(torch::stable::contiguous(*bias)) : std::nullopt;
    const auto run = weight.scalar_type() == ScalarType::Double ? forward<double> : forward<float>;
    return run(layer, features, noise, row);
}

// The gradients of weight, noise_weight and bias; the first and the last are empty where they are not computed.
std::tuple<Tensor, Tensor, Tensor> noisy_gcn_backward(
    const Tensor& gradient, const Optional& output, const Optional& rowptr, const Optional& col, const Optional& values,
    const Optional& rowptr_t, const Optional& col_t, const Optional& values_t, const Tensor& x_rowptr,
    const Tensor& x_col, const Tensor& x_values, const Tensor& x_rowptr_t, const Tensor& x_col_t,
    const Tensor& x_values_t, int64_t noise_dim, const Tensor& seed, int64_t noise_threshold, int64_t threshold,
    double scale, int64_t activation, int64_t precision, bool weight_wanted, bool bias_wanted) {
    const ProductsAt at(precision);
    const Operand flipped{x_rowptr_t, x_col_t, x_values_t};
    const NoisyLayer layer{operand(rowptr, col, values),
                           {x_rowptr, x_col, torch::stable::contiguous(x_values)},
                           flipped.rows(),
                           gradient.size(2),
                           gradient.size(1),
                           noise_dim,
                           noise_threshold,
                           {seed.const_data_ptr<int64_t>()[0], threshold, scale},
                           static_cast<Activation>(activation)};
    const Tensor upstream = torch::stable::contiguous(gradient);
    NoisyGradients out{new_tensor(upstream, {weight_wanted ? layer.num_columns : 0, layer.width}),
                       new_tensor(upstream, {noise_dim, layer.width}),
                       new_tensor(upstream, {bias_wanted ? layer.width : 0})};
    const bool dropped = layer.dropping.on(), wide = gradient.scalar_type() == ScalarType::Double;
    const auto run = wide ? (dropped ? dropped_backward<double> : shared_backward<double>)
                          : (dropped ? dropped_backward<float> : shared_backward<float>);
    run(layer, flipped, operand(rowptr_t, col_t, values_t), upstream, output, out);
    return {out.weight, out.noise_weight, out.bias};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("noisy_gcn", TORCH_BOX(&seegera::noisy_gcn));
    m.impl("noisy_gcn_backward", TORCH_BOX(&seegera::noisy_gcn_backward));
}

#endif
