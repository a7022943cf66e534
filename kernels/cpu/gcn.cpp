// out [n, S, d] = activation(A dropout(H) W + b), and its gradients.
//
// The mask of dropout is drawn again wherever it is needed; dropout(H) exists a tile at a time. All draws go through
// the propagation in one pass over its rows, which ends in bias and activation. Where h < d, A is applied first.
//
// Floor, lines = n S: forward 2 lines h d operations of the product and 2 nnz S min(h, d) of the propagation; backward
// twice the first and 2 nnz S d. Memory: read H, write out; besides the results one buffer [n, S, min(h, d)] in
// forward, two of [n, S, d] in backward.
#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

#include "common/layer.h"

namespace seegera {
namespace {

struct Layer {
    std::optional<Operand> propagation;
    Tensor hidden;
    Tensor weight;
    Dropping dropping;
    Activation activation;

    int64_t rows() const { return hidden.size(0); }
    int64_t draws() const { return hidden.size(1); }
    int64_t in() const { return weight.size(0); }
    int64_t out() const { return weight.size(1); }
    template <typename T>
    DropLines<T> mask() const {
        return {dropping, draws(), hidden.const_data_ptr<T>(), draws() * in(), in(), 0};
    }
    template <typename T>
    Lines<T> lines() const {
        return dropped(mask<T>(), rows(), in());
    }
};

template <typename T>
Tensor forward(const Layer& layer, const std::optional<Tensor>& bias) {
    const int64_t rows = layer.rows(), draws = layer.draws(), lines = rows * draws, in = layer.in(), d = layer.out();
    Tensor out = new_tensor(layer.hidden, {rows, draws, d});
    const Matrix<T> result = contiguous_matrix(out.mutable_data_ptr<T>(), lines, d);
    const Matrix<const T> weight = as_lines<T>(layer.weight);
    const Finish<T> finish{bias ? bias->const_data_ptr<T>() : nullptr, layer.activation};
    if (layer.propagation && d <= in) {
        Tensor product = new_tensor(layer.hidden, {lines, d});
        multiply_lines<T>(contiguous_matrix(product.mutable_data_ptr<T>(), lines, d), {{layer.lines<T>(), weight}},
                          false);
        const std::vector<T> row = repeated(finish.bias, d, draws);
        multiply_operand<T>(*layer.propagation, contiguous_matrix(product.const_data_ptr<T>(), rows, draws * d),
                            {bias ? row.data() : nullptr, layer.activation}, result.data);
        return out;
    }
    Lines<T> left = layer.lines<T>();
    std::optional<Tensor> propagated;
    if (layer.propagation) {
        Tensor mixed = new_tensor(layer.hidden, {lines, in}), kept = layer.hidden;
        if (left.fill) {
            kept = new_tensor(layer.hidden, {lines, in});
            T* target = kept.mutable_data_ptr<T>();
            for_each_range(lines, task_lines(in),
                           [&](int64_t begin, int64_t end) { left.fill(begin, end, 0, in, target + begin * in, in); });
        }
        multiply_operand<T>(*layer.propagation, contiguous_matrix(kept.const_data_ptr<T>(), rows, draws * in), {},
                            mixed.mutable_data_ptr<T>());
        propagated = mixed;
        left = {as_lines<T>(*propagated), nullptr};
    }
    multiply_lines<T>(result, {{left, weight}}, false, finishing(finish, d, result.data));
    return out;
}

// The gradients of hidden, weight and bias; empty where they are not computed.
template <typename T>
std::tuple<Tensor, Tensor, Tensor> backward(const Layer& layer, const Tensor& gradient,
                                            const std::optional<Tensor>& output, bool hidden_wanted, bool weight_wanted,
                                            bool bias_wanted) {
    const int64_t rows = layer.rows(), draws = layer.draws(), in = layer.in(), d = layer.out();
    Tensor of_bias = torch::stable::new_empty(layer.weight, {bias_wanted ? d : 0});
    Tensor of_weight = torch::stable::new_empty(layer.weight, {weight_wanted ? in : 0, weight_wanted ? d : 0});
    const Tensor of_sums = gradient_of_sums<T>(gradient, output, layer.activation, bias_wanted ? &of_bias : nullptr);
    Tensor of_product = of_sums, of_hidden = torch::stable::new_empty(layer.hidden, {0, draws, in});
    if (layer.propagation && (hidden_wanted || weight_wanted)) {
        of_product = new_tensor(gradient, {rows, draws, d});
        multiply_operand<T>(*layer.propagation, as_rows<T>(of_sums), {}, of_product.mutable_data_ptr<T>());
    }
    const Matrix<const T> right = as_lines<T>(of_product);
    if (weight_wanted) {
        multiply_transposed<T>(contiguous_matrix(of_weight.mutable_data_ptr<T>(), in, d), layer.lines<T>(), right);
    }
    if (hidden_wanted) {
        // The memory of of_sums is reused where it is not the argument, is no longer read, and has the right size.
        const bool spare = layer.propagation && d == in && layer.activation != Activation::none;
        of_hidden = spare ? of_sums : new_tensor(layer.hidden, {rows, draws, in});
        gradient_of_dropped<T>(layer.mask<T>(), right, as_lines<T>(layer.weight), of_hidden.mutable_data_ptr<T>());
    }
    return {of_hidden, of_weight, of_bias};
}

Layer make_layer(const std::optional<Tensor>& rowptr, const std::optional<Tensor>& col,
                 const std::optional<Tensor>& values, const Tensor& hidden, const Tensor& weight, int64_t threshold,
                 double scale, const Tensor& seed, int64_t activation) {
    std::optional<Operand> propagation;
    if (rowptr) {
        propagation = Operand{*rowptr, *col, *values};
    }
    return {propagation, torch::stable::contiguous(hidden), torch::stable::contiguous(weight),
            Dropping{seed.const_data_ptr<int64_t>()[0], threshold, scale}, static_cast<Activation>(activation)};
}

using Optional = std::optional<Tensor>;

// The transpose serves the backward pass.
Tensor gcn(const Optional& rowptr, const Optional& col, const Optional& values, const Optional&, const Optional&,
           const Optional&, const Tensor& hidden, const Tensor& weight, const Optional& bias, int64_t threshold,
           double scale, const Tensor& seed, int64_t activation, int64_t precision) {
    const ProductsAt at(precision);
    const Layer layer = make_layer(rowptr, col, values, hidden, weight, threshold, scale, seed, activation);
    Optional row;
    if (bias) {
        row = torch::stable::contiguous(*bias);
    }
    return hidden.scalar_type() == ScalarType::Double ? forward<double>(layer, row) : forward<float>(layer, row);
}

// Takes the transpose of the propagation.
std::tuple<Tensor, Tensor, Tensor> gcn_backward(const Tensor& gradient, const Optional& output, const Optional& rowptr,
                                                const Optional& col, const Optional& values, const Tensor& hidden,
                                                const Tensor& weight, int64_t threshold, double scale,
                                                const Tensor& seed, int64_t activation, int64_t precision,
                                                bool hidden_wanted, bool weight_wanted, bool bias_wanted) {
    const ProductsAt at(precision);
    const Layer layer = make_layer(rowptr, col, values, hidden, weight, threshold, scale, seed, activation);
    const Tensor upstream = torch::stable::contiguous(gradient);
    const auto run = hidden.scalar_type() == ScalarType::Double ? backward<double> : backward<float>;
    return run(layer, upstream, output, hidden_wanted, weight_wanted, bias_wanted);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("gcn", TORCH_BOX(&seegera::gcn));
    m.impl("gcn_backward", TORCH_BOX(&seegera::gcn_backward));
}

#endif
