// out [n, J, h] = dropout([z | zbar]) W with zbar = N zF, where N is X with its rows divided by the sums of their
// absolute values; and the gradients of z [n, J, d], zF [l, J, d] and W [2 d, h]. N is by rows, or in full.
//
// Nothing is joined: with W_z and W_f the halves of W,
//
//     out = z W_z + N (zF W_f)                                the features' side of the product first, or
//     out = dropout(z) W_z + dropout(zbar) W_f                the average first: with dropout there is no other way
//
// In the second form zbar is a second result, which backward reads; the masks are drawn again.
//
// Floor: 2 J (n + l) d h operations, or 4 n J d h with the average first; 2 nnz J h, or 2 nnz J d. Backward twice that.
// Besides the results and zbar one buffer, [l, J, h] or, in backward, [n, J, d].
#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <tuple>

#include "common/layer.h"

namespace seegera {
namespace {

struct Layer {
    Operand averaging;  // N
    Tensor z_nodes;     // contiguous, like all below
    Tensor weight;
    Dropping dropping;

    int64_t draws() const { return z_nodes.size(1); }
    int64_t depth() const { return z_nodes.size(2); }
    int64_t width() const { return weight.size(1); }
    int64_t lines() const { return z_nodes.size(0) * draws(); }
    // One half of [z | zbar].
    template <typename T>
    DropLines<T> half(const Tensor& values, int64_t index) const {
        return {dropping, draws(), values.const_data_ptr<T>(), draws() * depth(), depth(), index * depth()};
    }
    // Both, dropped: they are never stored side by side.
    template <typename T>
    Lines<T> joined(const Tensor& averaged) const {
        Lines<T> lines;
        lines.memory.rows = this->lines();
        lines.memory.columns = 2 * depth();
        lines.fill = [nodes = half<T>(z_nodes, 0), features = half<T>(averaged, 1), d = depth()](
                         int64_t begin, int64_t end, int64_t first, int64_t last, T* out, int64_t stride) {
            const auto drop = SEEGERA_CHOOSE(drop_lines<T>);
            if (first < d) {
                drop(nodes, begin, end, first, std::min(last, d), out, stride);
            }
            if (last > d) {
                const int64_t begins = std::max(first, d);
                drop(features, begin, end, begins - d, last - d, out + (begins - first), stride);
            }
        };
        return lines;
    }
    // One half of W.
    template <typename T>
    Matrix<const T> weight_half(int64_t index) const {
        return as_lines<T>(weight).row_range(index * depth(), (index + 1) * depth());
    }
};

template <typename T>
std::tuple<Tensor, Tensor> forward(const Layer& layer, const Tensor& z_features, bool average_first) {
    const int64_t n = layer.z_nodes.size(0), l = z_features.size(0), draws = layer.draws(), d = layer.depth();
    const int64_t h = layer.width();
    Tensor out = new_tensor(layer.z_nodes, {n, draws, h});
    Tensor averaged = new_tensor(layer.z_nodes, {average_first ? n : 0, draws, d});
    const Matrix<T> result = contiguous_matrix(out.mutable_data_ptr<T>(), layer.lines(), h);
    if (average_first) {
        multiply_operand<T>(layer.averaging, as_rows<T>(z_features), {}, averaged.mutable_data_ptr<T>());
        multiply_lines<T>(result, {{layer.joined<T>(averaged), as_lines<T>(layer.weight)}}, false);
    } else {
        Tensor product = new_tensor(z_features, {l, draws, h});
        multiply_lines<T>(contiguous_matrix(product.mutable_data_ptr<T>(), l * draws, h),
                          {{{as_lines<T>(z_features), nullptr}, layer.weight_half<T>(1)}}, false);
        multiply_operand<T>(layer.averaging, as_rows<T>(product), {}, result.data);
        multiply_lines<T>(result, {{{as_lines<T>(layer.z_nodes), nullptr}, layer.weight_half<T>(0)}}, true);
    }
    return {out, averaged};
}

// The gradients of z_nodes, z_features and weight; empty where they are not computed.
template <typename T>
std::tuple<Tensor, Tensor, Tensor> backward(const Layer& layer, const Operand& flipped, const Tensor& gradient,
                                            const Tensor& z_features, const Tensor& averaged, bool average_first,
                                            bool nodes_wanted, bool features_wanted, bool weight_wanted) {
    const int64_t n = layer.z_nodes.size(0), l = flipped.rows(), draws = layer.draws(), d = layer.depth();
    const int64_t h = layer.width();
    Tensor of_nodes = new_tensor(gradient, {nodes_wanted ? n : 0, draws, d});
    Tensor of_features = new_tensor(gradient, {features_wanted ? l : 0, draws, d});
    Tensor of_weight = new_tensor(gradient, {weight_wanted ? 2 * d : 0, h});
    const Matrix<const T> upstream = as_lines<T>(gradient);
    const Matrix<T> to_weight = contiguous_matrix(of_weight.mutable_data_ptr<T>(), 2 * d, h);
    if (nodes_wanted) {
        gradient_of_dropped<T>(layer.half<T>(layer.z_nodes, 0), upstream, layer.weight_half<T>(0),
                               of_nodes.mutable_data_ptr<T>());
    }
    if (average_first) {
        if (weight_wanted) {
            multiply_transposed<T>(to_weight, layer.joined<T>(averaged), upstream);
        }
        if (features_wanted) {
            Tensor of_averaged = new_tensor(gradient, {n, draws, d});
            gradient_of_dropped<T>(layer.half<T>(averaged, 1), upstream, layer.weight_half<T>(1),
                                   of_averaged.mutable_data_ptr<T>());
            multiply_operand<T>(flipped, as_rows<T>(of_averaged), {}, of_features.mutable_data_ptr<T>());
        }
        return {of_nodes, of_features, of_weight};
    }
    if (weight_wanted) {
        multiply_transposed<T>(to_weight.row_range(0, d), {as_lines<T>(layer.z_nodes), nullptr}, upstream);
    }
    if (features_wanted || weight_wanted) {
        Tensor of_product = new_tensor(gradient, {l, draws, h});
        multiply_operand<T>(flipped, as_rows<T>(gradient), {}, of_product.mutable_data_ptr<T>());
        const Matrix<const T> right = as_lines<T>(of_product);
        if (features_wanted) {
            multiply_lines<T>(contiguous_matrix(of_features.mutable_data_ptr<T>(), l * draws, d),
                              {{{right, nullptr}, layer.weight_half<T>(1).flipped()}}, false);
        }
        if (weight_wanted) {
            multiply_transposed<T>(to_weight.row_range(d, 2 * d), {as_lines<T>(z_features), nullptr}, right);
        }
    }
    return {of_nodes, of_features, of_weight};
}

// The transpose serves the backward pass.
std::tuple<Tensor, Tensor> decoder_input(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor&,
                                         const Tensor&, const Tensor&, const Tensor& z_nodes, const Tensor& z_features,
                                         const Tensor& weight, bool average_first, int64_t threshold, double scale,
                                         const Tensor& seed, int64_t precision) {
    const ProductsAt at(precision);
    const Layer layer{{rowptr, col, values},
                      torch::stable::contiguous(z_nodes),
                      torch::stable::contiguous(weight),
                      {seed.const_data_ptr<int64_t>()[0], threshold, scale}};
    const Tensor features = torch::stable::contiguous(z_features);
    const auto run = weight.scalar_type() == ScalarType::Double ? forward<double> : forward<float>;
    return run(layer, features, average_first);
}

// `averaged` is the second result of decoder_input.
std::tuple<Tensor, Tensor, Tensor> decoder_input_backward(
    const Tensor& gradient, const Tensor& rowptr_t, const Tensor& col_t, const Tensor& values_t, const Tensor& z_nodes,
    const Tensor& z_features, const Tensor& averaged, const Tensor& weight, bool average_first, int64_t threshold,
    double scale, const Tensor& seed, int64_t precision, bool nodes_wanted, bool features_wanted, bool weight_wanted) {
    const ProductsAt at(precision);
    const Operand flipped{rowptr_t, col_t, values_t};
    const Layer layer{flipped,
                      torch::stable::contiguous(z_nodes),
                      torch::stable::contiguous(weight),
                      {seed.const_data_ptr<int64_t>()[0], threshold, scale}};
    const Tensor upstream = torch::stable::contiguous(gradient), features = torch::stable::contiguous(z_features);
    const Tensor means = torch::stable::contiguous(averaged);
    const auto run = weight.scalar_type() == ScalarType::Double ? backward<double> : backward<float>;
    return run(layer, flipped, upstream, features, means, average_first, nodes_wanted, features_wanted, weight_wanted);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("decoder_input", TORCH_BOX(&seegera::decoder_input));
    m.impl("decoder_input_backward", TORCH_BOX(&seegera::decoder_input_backward));
}

#endif
