// out [n, S, h] = activation(A dropout([X | eps_s]) W + b) for S draws of the noise, and the gradients of W's two parts
// and b. X is by rows.
//
// [X | eps] W = X W_x + eps W_e is never joined. Without dropout the draws share P = A X W_x, and differ by the product
// of rank c of A eps_s, [n, c], with W_e, which is added as the output is written. Backward sums the draws first: the
// gradient of W_x is X^T (A^T sum_s G_s). With dropout each draw has a separate mask over the entries of X, which is
// drawn where it is needed, forward and backward, and never stored.
//
// Floor, without dropout: 2 nnz(X) h operations and 2 nnz(A) h, once for all draws, forward and again backward; out
// written once, and read again in backward with its gradient. With dropout, X costs S times as much, less what is
// dropped, and A works on [n, S, h].

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "common/launch.cuh"
#include "common/philox.cuh"
#include "common/products.cuh"

namespace seegera::cuda {
namespace {

using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

constexpr int kThreads = 128;

// In the order of ACTIVATIONS in seegera_fast/reference/activation.py.
enum class Activation : int64_t { relu, tanh, none };

// Inverted dropout: what is kept is multiplied by `scale`.
struct Dropping {
    const int64_t* __restrict__ seed;
    int64_t threshold;  // of a word: below it, the element is dropped
    double scale;

    bool on() const { return threshold > 0; }
    __device__ __forceinline__ bool keeps(int64_t row, int64_t draw, int64_t column) const {
        return static_cast<int64_t>(philox_word(*seed, kDropoutStream, row, draw, column)) >= threshold;
    }
};

// The noise, 0 or 1, times the factors of dropout where it is on.
struct Noise {
    Dropping dropping;
    int64_t threshold;     // of a word: below it, the noise is 1
    int64_t first_column;  // where the noise begins in the lines that the mask of dropout is drawn for
    int64_t lines;         // n * S
    int64_t draws;
    int64_t width;  // c
};

template <typename T>
__global__ void __launch_bounds__(kThreads) noise_kernel(const Noise noise, T* __restrict__ out) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= noise.lines * noise.width) return;
    const int64_t line = i / noise.width, column = i % noise.width;
    const int64_t row = line / noise.draws, draw = line % noise.draws;
    const int64_t word = philox_word(*noise.dropping.seed, kNoiseStream, row, draw, column);
    const bool kept = noise.dropping.threshold == 0 || noise.dropping.keeps(row, draw, noise.first_column + column);
    out[i] = word < noise.threshold && kept ? static_cast<T>(noise.dropping.scale) : T(0);
}

// Terms of products.cuh: X, an entry of which counts in the draws that keep it, with W_x.
template <typename T>
struct MaskedRows {
    Entries<T> entries;
    Dropping dropping;
    int64_t draws;

    __device__ __forceinline__ Term<T> term(int64_t row, int64_t draw, int64_t k) const {
        const int64_t column = entries.col[k];
        return {column, entries.values[k] * static_cast<T>(dropping.scale), dropping.keeps(row, draw, column)};
    }
    __host__ __device__ int64_t copies() const { return draws; }
    __host__ __device__ static constexpr int64_t repeats() { return 1; }
};

// The same for X^T with [n, S, h]: an entry meets the lines of all draws that keep it.
template <typename T>
struct MaskedColumns {
    Entries<T> entries;
    Dropping dropping;
    int64_t draws;

    __device__ __forceinline__ Term<T> term(int64_t column, int64_t, int64_t number) const {
        const int64_t k = number / draws, draw = number % draws;
        const int64_t row = entries.col[k];
        return {row * draws + draw, entries.values[k] * static_cast<T>(dropping.scale),
                dropping.keeps(row, draw, column)};
    }
    __host__ __device__ static constexpr int64_t copies() { return 1; }
    __host__ __device__ int64_t repeats() const { return draws; }
};

// activation(base + noise @ weight + bias); one block a line.
template <typename T>
struct Finish {
    const T* base;                 // [n, h] for all draws, or [n, S, h], which may be `out`
    int64_t draws_of_base;         // S or 1: lines that share one of `base`
    const T* __restrict__ noise;   // [n, S, c]
    const T* __restrict__ weight;  // [c, h]
    int64_t noise_width;
    const T* __restrict__ bias;  // [h], or null
    Activation activation;
    int64_t width;
    T* out;  // [n, S, h]
};

template <typename T>
__global__ void __launch_bounds__(kThreads) finish_kernel(const Finish<T> p) {
    const int64_t line = blockIdx.x;
    const T* base = p.base + line / p.draws_of_base * p.width;
    const T* __restrict__ noise = p.noise + line * p.noise_width;
    for (int64_t column = threadIdx.x; column < p.width; column += kThreads) {
        T sum = base[column];
        if (p.bias != nullptr) sum += p.bias[column];
        for (int64_t k = 0; k < p.noise_width; ++k) sum += noise[k] * p.weight[k * p.width + column];
        if (p.activation == Activation::relu) {
            // As torch.relu: a NaN stays one.
            sum = sum < 0 ? T(0) : sum;
        } else if (p.activation == Activation::tanh) {
            sum = tanh(sum);
        }
        p.out[line * p.width + column] = sum;
    }
}

// The gradient of the sums from that of the output.
template <typename T>
__device__ __forceinline__ T through(Activation activation, T gradient, const T* output, int64_t i) {
    // As torch.relu: a NaN lets it through.
    if (activation == Activation::relu) return output[i] <= 0 ? T(0) : gradient;
    if (activation == Activation::tanh) return gradient == 0 ? T(0) : gradient * (1 - output[i] * output[i]);
    return gradient;
}

// of_sums [n, S, h]: the gradient of the sums. total [n, h], may be null: its sum over the draws. One block for each
// row of X.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(const T* __restrict__ gradient, const T* __restrict__ output, const Activation activation,
                    const int64_t draws, const int64_t width, T* __restrict__ of_sums, T* __restrict__ total) {
    const int64_t row = blockIdx.x;
    for (int64_t column = threadIdx.x; column < width; column += kThreads) {
        T sum = 0;
        for (int64_t line = row * draws; line < (row + 1) * draws; ++line) {
            const int64_t i = line * width + column;
            const T value = through(activation, gradient[i], output, i);
            of_sums[i] = value;
            sum += value;
        }
        if (total != nullptr) total[row * width + column] = sum;
    }
}

struct Layer {
    std::optional<CsrTensors> propagation;
    CsrTensors features;
    int64_t num_columns;  // l
    int64_t width;        // h
    int64_t draws;
    int64_t noise_width;
    int64_t noise_threshold;
    Dropping dropping;
    Activation activation;

    int64_t rows() const { return features.rows().rows; }
    int64_t lines() const { return rows() * draws; }
};

template <typename T>
Dense<T> contiguous_dense(const Tensor& tensor, int64_t width) {
    return {tensor.const_data_ptr<T>(), width, width};
}

// Contiguous rows of `dense`, `width` numbers each, times a propagation, or as they are where there is none.
template <typename T>
Tensor propagated(const Launcher& launch, const std::optional<CsrTensors>& propagation, const Tensor& dense,
                  int64_t width) {
    if (!propagation || dense.numel() == 0) return dense;
    return multiply<T>(launch, *propagation, contiguous_dense<T>(dense, width));
}

template <typename T>
Tensor draw_noise(const Launcher& launch, const Layer& layer) {
    Tensor out = torch::stable::new_empty(layer.features.values, {layer.lines(), layer.noise_width});
    const Noise noise = {layer.dropping, layer.noise_threshold, layer.num_columns,
                         layer.lines(),  layer.draws,           layer.noise_width};
    launch(noise_kernel<T>, ceil_div(out.numel(), kThreads), kThreads, noise, out.mutable_data_ptr<T>());
    return out;
}

template <typename T>
Tensor forward(const Layer& layer, const Tensor& weight, const Tensor& noise_weight, const Optional& bias) {
    const Launcher launch(weight);
    const int64_t h = layer.width;
    Tensor out = torch::stable::new_empty(weight, {layer.rows(), layer.draws, h});
    if (out.numel() == 0) return out;
    Tensor noise = draw_noise<T>(launch, layer);
    const Dense<T> right = contiguous_dense<T>(weight, h);
    const auto finish = [&](const Tensor& base, int64_t draws_of_base, int64_t noise_width, bool last) {
        const Finish<T> p = {base.const_data_ptr<T>(),
                             draws_of_base,
                             noise.const_data_ptr<T>(),
                             noise_weight.const_data_ptr<T>(),
                             noise_width,
                             last && bias ? bias->const_data_ptr<T>() : nullptr,
                             last ? layer.activation : Activation::none,
                             h,
                             out.mutable_data_ptr<T>()};
        launch(finish_kernel<T>, layer.lines(), kThreads, p);
    };
    if (!layer.dropping.on()) {
        const Tensor product = propagated<T>(launch, layer.propagation, multiply<T>(launch, layer.features, right), h);
        noise = propagated<T>(launch, layer.propagation, noise, layer.draws * layer.noise_width);
        finish(product, layer.draws, layer.noise_width, true);
        return out;
    }
    const MaskedRows<T> terms = {layer.features.entries<T>(), layer.dropping, layer.draws};
    multiply_rows(launch, layer.features.rowptr, layer.features.rows(), terms, right, out);
    // Bias and activation follow the propagation. Before it, without noise, there is nothing to add.
    if (!layer.propagation || layer.noise_width > 0) finish(out, 1, layer.noise_width, !layer.propagation);
    if (layer.propagation) finish(propagated<T>(launch, layer.propagation, out, layer.draws * h), 1, 0, true);
    return out;
}

template <typename T>
std::tuple<Tensor, Tensor, Tensor> backward(const Layer& layer, const CsrTensors& flipped,
                                            const std::optional<CsrTensors>& flipped_propagation,
                                            const Tensor& gradient, const Optional& output, bool weight_wanted,
                                            bool bias_wanted) {
    const Launcher launch(gradient);
    const int64_t h = layer.width;
    const bool dropped = layer.dropping.on();
    Tensor of_sums = torch::stable::new_empty(gradient, {layer.lines(), h});
    Tensor total = torch::stable::new_empty(gradient, {dropped ? 0 : layer.rows(), h});
    launch(gradient_kernel<T>, h == 0 ? 0 : layer.rows(), kThreads, gradient.const_data_ptr<T>(),
           output ? output->const_data_ptr<T>() : nullptr, layer.activation, layer.draws, h,
           of_sums.mutable_data_ptr<T>(), dropped ? nullptr : total.mutable_data_ptr<T>());
    const int64_t lines_dimension = 0;
    const Tensor bias = bias_wanted
                            ? torch::stable::sum(of_sums, torch::headeronly::IntHeaderOnlyArrayRef(&lines_dimension, 1))
                            : torch::stable::new_empty(of_sums, {0});
    Tensor noise = draw_noise<T>(launch, layer);
    Tensor weight = torch::stable::new_empty(of_sums, {weight_wanted ? layer.num_columns : 0, h});
    if (dropped) {
        // The gradient of dropout([X | eps]) W, before the propagation.
        of_sums = torch::stable::view(propagated<T>(launch, flipped_propagation, of_sums, layer.draws * h),
                                      {layer.lines(), h});
        if (weight_wanted) {
            const MaskedColumns<T> terms = {flipped.entries<T>(), layer.dropping, layer.draws};
            multiply_rows(launch, flipped.rowptr, flipped.rows(), terms, contiguous_dense<T>(of_sums, h), weight);
        }
    } else {
        const int64_t columns = layer.draws * layer.noise_width;
        noise = torch::stable::view(propagated<T>(launch, layer.propagation, noise, columns),
                                    {layer.lines(), layer.noise_width});
        if (weight_wanted) {
            total = propagated<T>(launch, flipped_propagation, total, h);
            weight = multiply<T>(launch, flipped, contiguous_dense<T>(total, h));
        }
    }
    return {weight, torch::stable::matmul(torch::stable::transpose(noise, 0, 1), of_sums), bias};
}

std::optional<CsrTensors> matrix(const Optional& rowptr, const Optional& col, const Optional& values) {
    if (!rowptr) return std::nullopt;
    return CsrTensors{*rowptr, *col, *values};
}

// The transposes serve the backward pass.
Tensor noisy_gcn(const Optional& rowptr, const Optional& col, const Optional& values, const Optional&, const Optional&,
                 const Optional&, const Tensor& x_rowptr, const Tensor& x_col, const Tensor& x_values, const Tensor&,
                 const Tensor&, const Tensor&, const Tensor& weight, const Tensor& noise_weight, const Optional& bias,
                 int64_t num_draws, const Tensor& seed, int64_t noise_threshold, int64_t threshold, double scale,
                 int64_t activation, int64_t) {
    const Layer layer = {matrix(rowptr, col, values),
                         {x_rowptr, x_col, x_values},
                         weight.size(0),
                         weight.size(1),
                         num_draws,
                         noise_weight.size(0),
                         noise_threshold,
                         {seed.const_data_ptr<int64_t>(), threshold, scale},
                         static_cast<Activation>(activation)};
    const Tensor features = torch::stable::contiguous(weight), noise = torch::stable::contiguous(noise_weight);
    const Optional row = bias ? Optional(torch::stable::contiguous(*bias)) : std::nullopt;
    const bool wide = weight.scalar_type() == torch::headeronly::ScalarType::Double;
    return (wide ? forward<double> : forward<float>)(layer, features, noise, row);
}

// The gradients of weight, noise_weight and bias; the first and the last are empty where they are not computed.
std::tuple<Tensor, Tensor, Tensor> noisy_gcn_backward(
    const Tensor& gradient, const Optional& output, const Optional& rowptr, const Optional& col, const Optional& values,
    const Optional& rowptr_t, const Optional& col_t, const Optional& values_t, const Tensor& x_rowptr,
    const Tensor& x_col, const Tensor& x_values, const Tensor& x_rowptr_t, const Tensor& x_col_t,
    const Tensor& x_values_t, int64_t noise_dim, const Tensor& seed, int64_t noise_threshold, int64_t threshold,
    double scale, int64_t activation, int64_t, bool weight_wanted, bool bias_wanted) {
    const Layer layer = {matrix(rowptr, col, values),
                         {x_rowptr, x_col, x_values},
                         x_rowptr_t.numel() - 1,
                         gradient.size(2),
                         gradient.size(1),
                         noise_dim,
                         noise_threshold,
                         {seed.const_data_ptr<int64_t>(), threshold, scale},
                         static_cast<Activation>(activation)};
    const bool wide = gradient.scalar_type() == torch::headeronly::ScalarType::Double;
    return (wide ? backward<double>
                 : backward<float>)(layer, {x_rowptr_t, x_col_t, x_values_t}, matrix(rowptr_t, col_t, values_t),
                                    torch::stable::contiguous(gradient),
                                    output ? Optional(torch::stable::contiguous(*output)) : std::nullopt, weight_wanted,
                                    bias_wanted);
}

}  // namespace
}  // namespace seegera::cuda

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CUDA, m) {
    m.impl("noisy_gcn", TORCH_BOX(&seegera::cuda::noisy_gcn));
    m.impl("noisy_gcn_backward", TORCH_BOX(&seegera::cuda::noisy_gcn_backward));
}
