// log Omega_j = sum_i logsumexp_k log N(z_ij; mu_ik, exp(log_var_ik)) - log(K + 1), and its gradient.
//
// Forward keeps the weights of the components, [n, J, K + 1], so that backward reads the operands once and sums no
// density again. Floors: common/mixture.h.
#include "common/mixture.h"

#ifndef SEEGERA_REGISTER

#include "common/math.h"

namespace seegera {
namespace SEEGERA_ISA {

// values [J] += the rows' densities; weights [n, J, K + 1] = softmax of a row's components, zeros where all densities
// are 0. scratch: deviations [V, stride], then doubles [V + J (K + 1)].
template <typename T>
void mixture_rows(const Mixture<T>& p, int64_t row_begin, int64_t row_end, T* deviations, int64_t stride,
                  double* scratch, double* values, T* weights) {
    using Wide = Vector<double, kVectorBytes>;
    const int64_t components = p.extra + 1;
    double* normalisers = scratch;
    double* densities = scratch + p.variances;
    const double log_components = log(static_cast<double>(components));
    for (int64_t row = row_begin; row < row_end; ++row) {
        row_densities(p, row, deviations, stride, normalisers, densities);
        for (int64_t j = 0; j < p.samples; ++j) {
            double* terms = densities + j * components;
            T* weight = weights + (row * p.samples + j) * components;
            double highest = terms[0];
            for (int64_t k = 1; k < components; ++k) {
                highest = terms[k] > highest ? terms[k] : highest;
            }
            const double subtracted = highest == -__builtin_inf() ? 0 : highest;
            double sum = 0;
            for (int64_t k = 0; k < components; k += kLanes<Wide>) {
                const int64_t count = components - k < kLanes<Wide> ? components - k : kLanes<Wide>;
                store_part(terms + k, exp(load_part<Wide>(terms + k, count) - subtracted), count);
            }
            for (int64_t k = 0; k < components; ++k) {
                sum += terms[k];
            }
            for (int64_t k = 0; k < components; ++k) {
                weight[k] = static_cast<T>(terms[k] / (sum == 0 ? 1 : sum));
            }
            // The sum may be NaN or 0, which log does not take; a NaN among the terms is not always the highest.
            values[j] += highest + (sum > 0 ? log(sum) - log_components : sum);
        }
    }
}

// weights [J, K + 1] of a row times the upstream gradient [J], into scratch [J, K + 1], behind which lies that of
// row_gradient.
template <typename T>
void mixture_gradient_rows(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row_begin, int64_t row_end,
                           const T* weights, const T* upstream, T* scratch) {
    const int64_t components = p.extra + 1;
    for (int64_t row = row_begin; row < row_end; ++row) {
        const T* of_row = weights + row * p.samples * components;
        for (int64_t i = 0; i < p.samples * components; ++i) {
            scratch[i] = weighted(upstream[i / components], of_row[i]);
        }
        row_gradient(p, g, row, scratch, scratch + p.samples * components);
    }
    stream_fence();
}

#define SEEGERA_INSTANTIATE(T)                                                                                    \
    template void mixture_rows(const Mixture<T>&, int64_t, int64_t, T*, int64_t, double*, double*, T*);           \
    template void mixture_gradient_rows(const Mixture<T>&, const MixtureGradient<T>&, int64_t, int64_t, const T*, \
                                        const T*, T*);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>

#include <tuple>

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T>
                     void mixture_rows(const Mixture<T>&, int64_t, int64_t, T*, int64_t, double*, double*, T*);
                     template <typename T> void mixture_gradient_rows(const Mixture<T>&, const MixtureGradient<T>&,
                                                                      int64_t, int64_t, const T*, const T*, T*);)

namespace {

using torch::stable::Tensor;

template <typename T>
std::tuple<Tensor, Tensor> forward(const Tensor& z, const Tensor& means, const Tensor& log_var) {
    const MixtureOperands<T> operands(z, means, log_var);
    const int64_t samples = operands.p.samples;
    Tensor weights = torch::stable::new_empty(z, {operands.rows(), samples, operands.components()});
    Tensor out = torch::stable::new_empty(z, {samples});
    const std::vector<double> sums =
        sum_over_mixture_tasks(operands, samples, SEEGERA_CHOOSE(mixture_rows<T>), weights.mutable_data_ptr<T>());
    T* values = out.mutable_data_ptr<T>();
    for (int64_t j = 0; j < samples; ++j) {
        values[j] = static_cast<T>(sums[j]);
    }
    return {out, weights};
}

template <typename T>
std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& z, const Tensor& means, const Tensor& log_var,
                                            const Tensor& weights, const Tensor& gradient) {
    const MixtureOperands<T> operands(z, means, log_var);
    const Tensor upstream = torch::stable::contiguous(gradient);
    const T* upstream_data = upstream.const_data_ptr<T>();
    const Tensor shares = torch::stable::contiguous(weights);
    const T* weights_data = shares.const_data_ptr<T>();
    MixtureGradients<T> gradients(operands);
    const auto run = SEEGERA_CHOOSE(mixture_gradient_rows<T>);
    for_each_range(operands.rows(), operands.task_rows(), [&](int64_t begin, int64_t end) {
        std::vector<T> scratch(operands.p.samples * operands.components() + operands.gradient_scratch());
        run(operands.p, gradients.g, begin, end, weights_data, upstream_data, scratch.data());
    });
    return {gradients.z, gradients.means, gradients.log_var};
}

std::tuple<Tensor, Tensor> mixture_density(const Tensor& z, const Tensor& means, const Tensor& log_var) {
    return is_double(z) ? forward<double>(z, means, log_var) : forward<float>(z, means, log_var);
}

std::tuple<Tensor, Tensor, Tensor> mixture_density_backward(const Tensor& z, const Tensor& means, const Tensor& log_var,
                                                            const Tensor& weights, const Tensor& gradient) {
    return is_double(z) ? backward<double>(z, means, log_var, weights, gradient)
                        : backward<float>(z, means, log_var, weights, gradient);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("mixture_density", TORCH_BOX(&seegera::mixture_density));
    m.impl("mixture_density_backward", TORCH_BOX(&seegera::mixture_density_backward));
}

#endif
