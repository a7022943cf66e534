// noisy_gcn without dropout: the draws share P = A X W_x, and differ by the product of rank c of A eps_s with W_e,
// which is added to P while a row of it is in registers. Backward sums the draws first.
#pragma once

#include "noisy_gcn.h"

namespace seegera {

// Rows of a product that the draws share, plus noise @ weight of each draw.
template <typename T>
struct NoisyRows {
    CsrProduct<T> shared;  // without row pointers: the rows of its dense side as they are
    const T* noise;        // [n, S, c]
    const T* weight;       // [c, h]
    int64_t noise_dim;
    int64_t num_draws;
    int64_t width;
    Finish<T> finish;
    ProductRows<T> out;  // [n, S, h]
};

// Backward without dropout, from the gradient and the output [n, S, h].
template <typename T>
struct NoisyGradient {
    Activation activation;
    int64_t num_draws;
    int64_t noise_dim;
    int64_t width;
    const T* gradient;
    const T* output;
    const T* noise;  // [n, S, c]
    T* total;        // [n, h]: the sum over draws
    T* sums;         // [c + 1, h]: a task's part of the gradients of noise_weight and bias
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
void noisy_rows(const NoisyRows<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
    const auto finish = [&](int64_t row, auto block, auto& shared) {
        typename decltype(block)::Sums sum;
        if (p.finish.bias != nullptr) {
            block.add(T(1), p.finish.bias, shared);
        }
        for (int64_t line = row * p.num_draws; line < (row + 1) * p.num_draws; ++line) {
            __builtin_memcpy(&sum, &shared, sizeof(sum));
            add_noise(p.noise + line * p.noise_dim, p.weight, p.noise_dim, p.width, block, sum);
            activate(p.finish.activation, sum);
            block.put(sum, p.out, line);
        }
    };
    if (p.shared.rowptr != nullptr) {
        for_each_product_block(p.shared, row_begin, row_end, column_begin, column_end, finish);
    } else {
        for_each_block<T>(row_begin, row_end, column_begin, column_end, [&](int64_t row, auto block) {
            typename decltype(block)::Sums shared = {};
            block.add(T(1), p.shared.dense + row * p.shared.dense_stride, shared);
            finish(row, block, shared);
        });
    }
    end_rows(p.out);
}

template <typename T>
void noisy_gradient_rows(const NoisyGradient<T>& p, int64_t row_begin, int64_t row_end) {
    using V = Vector<T, kVectorBytes>;
    for (int64_t at = 0; at < (p.noise_dim + 1) * p.width; ++at) {
        p.sums[at] = 0;
    }
    T* bias = p.sums + p.noise_dim * p.width;
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t column = 0; column < p.width; column += kLanes<V>) {
            const int64_t left = p.width - column;
            V total{};
            for (int64_t line = row * p.num_draws; line < (row + 1) * p.num_draws; ++line) {
                V gradient = load_part<V>(p.gradient + line * p.width + column, left);
                if (p.activation != Activation::none) {
                    gradient = through_activation(p.activation, gradient,
                                                  load_part<V>(p.output + line * p.width + column, left));
                }
                total += gradient;
                for (int64_t k = 0; k < p.noise_dim; ++k) {
                    T* target = p.sums + k * p.width + column;
                    store_part(target, load_part<V>(target, left) + gradient * p.noise[line * p.noise_dim + k], left);
                }
            }
            store_part(p.total + row * p.width + column, total, left);
            store_part(bias + column, load_part<V>(bias + column, left) + total, left);
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                                                         \
    template void noisy_rows(const NoisyRows<T>&, int64_t, int64_t, int64_t, int64_t); \
    template void noisy_gradient_rows(const NoisyGradient<T>&, int64_t, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void noisy_rows(const NoisyRows<T>&, int64_t, int64_t, int64_t, int64_t);
                     template <typename T> void noisy_gradient_rows(const NoisyGradient<T>&, int64_t, int64_t);)

// Without dropout: one product for all draws.
template <typename T>
void shared_forward(const NoisyLayer& layer, const Tensor& weight, const Tensor& noise_weight, const Finish<T>& finish,
                    Tensor& out) {
    const int64_t h = layer.width;
    Matrix<const T> right = as_rows<T>(weight);
    const Tensor noise = propagated<T>(layer, layer_noise<T>(layer));
    NoisyRows<T> p{{},
                   noise.const_data_ptr<T>(),
                   noise_weight.const_data_ptr<T>(),
                   layer.noise_dim,
                   layer.num_draws,
                   h,
                   finish,
                   rows_of_product(out.mutable_data_ptr<T>(), layer.lines(), h)};
    const Operand& last = layer.propagation ? *layer.propagation : layer.features;
    std::optional<Tensor> product;
    if (layer.propagation) {
        product = new_tensor(weight, {layer.rows(), h});
        multiply_operand<T>(layer.features, right, {}, product->mutable_data_ptr<T>());
        right = as_rows<T>(*product);
    }
    if (!last.dense()) {
        for_each_product_task(last.times(right), weight, layer.rows(), h, 1,
                              [&](const CsrProduct<T>& shared, auto... range) {
                                  NoisyRows<T> part = p;
                                  part.shared = shared;
                                  SEEGERA_CHOOSE(noisy_rows<T>)(part, range...);
                              });
        return;
    }
    Tensor mixed = new_tensor(weight, {layer.rows(), h});
    T* target = mixed.mutable_data_ptr<T>();
    p.shared.dense = target;
    p.shared.dense_stride = h;
    const Matrix<const T> left = last.in_full<T>();
    multiply_lines<T>(contiguous_matrix(target, layer.rows(), h), {{{left, nullptr}, right}}, false,
                      [&](int64_t begin, int64_t end) { SEEGERA_CHOOSE(noisy_rows<T>)(p, begin, end, 0, h); });
}

template <typename T>
void shared_backward(const NoisyLayer& layer, const Operand& flipped, const std::optional<Operand>& flipped_propagation,
                     const Tensor& gradient, const Optional& output, NoisyGradients& out) {
    const int64_t rows = layer.rows(), h = layer.width, c = layer.noise_dim, size = (c + 1) * h;
    const Tensor noise = propagated<T>(layer, layer_noise<T>(layer));
    Tensor total = new_tensor(gradient, {rows, h});
    const int64_t step = summing_lines(rows, layer.num_draws * h), tasks = (rows + step - 1) / step;
    const Scratch<T> partial(tasks * size);
    // What was saved in the forward pass may come back with other strides.
    const Tensor outputs = output ? torch::stable::contiguous(*output) : gradient;
    const NoisyGradient<T> whole{layer.activation,
                                 layer.num_draws,
                                 c,
                                 h,
                                 gradient.const_data_ptr<T>(),
                                 output ? outputs.const_data_ptr<T>() : nullptr,
                                 noise.const_data_ptr<T>(),
                                 total.mutable_data_ptr<T>(),
                                 nullptr};
    for_each_range(rows, step, [&](int64_t begin, int64_t end) {
        NoisyGradient<T> p = whole;
        p.sums = partial.get() + begin / step * size;
        SEEGERA_CHOOSE(noisy_gradient_rows<T>)(p, begin, end);
    });
    add_up(partial.get(), tasks, size, c * h, out.noise_weight.mutable_data_ptr<T>());
    add_up(partial.get() + c * h, tasks, size, out.bias.numel(), out.bias.mutable_data_ptr<T>());
    if (out.weight.numel() == 0) {
        return;
    }
    if (flipped_propagation) {
        Tensor mixed = new_tensor(gradient, {rows, h});
        multiply_operand<T>(*flipped_propagation, as_rows<T>(total), {}, mixed.mutable_data_ptr<T>());
        total = mixed;
    }
    if (layer.features.dense()) {
        multiply_transposed<T>(contiguous_matrix(out.weight.mutable_data_ptr<T>(), layer.num_columns, h),
                               {layer.features.in_full<T>(), nullptr}, as_lines<T>(total));
    } else {
        multiply_operand<T>(flipped, as_rows<T>(total), {}, out.weight.mutable_data_ptr<T>());
    }
}

}  // namespace seegera

#endif
