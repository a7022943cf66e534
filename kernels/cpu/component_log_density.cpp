// sum_i log N(z_ij; mu_ik, exp(log_var_ik)) for each sample j and component k, and its gradient. Floors:
// common/mixture.h.
#include "common/mixture.h"

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

// values [J, K + 1] += the rows' densities. scratch: deviations [V, stride], then doubles [V + J (K + 1)].
template <typename T>
void component_rows(const Mixture<T>& p, int64_t row_begin, int64_t row_end, T* deviations, int64_t stride,
                    double* scratch, double* values) {
    double* normalisers = scratch;
    double* densities = scratch + p.variances;
    for (int64_t row = row_begin; row < row_end; ++row) {
        row_densities(p, row, deviations, stride, normalisers, densities);
        for (int64_t i = 0; i < p.samples * (p.extra + 1); ++i) {
            values[i] += densities[i];
        }
    }
}

template <typename T>
void component_gradient_rows(const Mixture<T>& p, const MixtureGradient<T>& g, int64_t row_begin, int64_t row_end,
                             const T* upstream, T* scratch) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        row_gradient(p, g, row, upstream, scratch);
    }
    stream_fence();
}

#define SEEGERA_INSTANTIATE(T)                                                                        \
    template void component_rows(const Mixture<T>&, int64_t, int64_t, T*, int64_t, double*, double*); \
    template void component_gradient_rows(const Mixture<T>&, const MixtureGradient<T>&, int64_t, int64_t, const T*, T*);
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
                     void component_rows(const Mixture<T>&, int64_t, int64_t, T*, int64_t, double*, double*);
                     template <typename T> void component_gradient_rows(const Mixture<T>&, const MixtureGradient<T>&,
                                                                        int64_t, int64_t, const T*, T*);)

namespace {

using torch::stable::Tensor;

template <typename T>
Tensor forward(const Tensor& z, const Tensor& means, const Tensor& log_var) {
    const MixtureOperands<T> operands(z, means, log_var);
    const int64_t cells = operands.p.samples * operands.components();
    Tensor out = torch::stable::new_empty(z, {operands.p.samples, operands.components()});
    const std::vector<double> sums = sum_over_mixture_tasks(operands, cells, SEEGERA_CHOOSE(component_rows<T>));
    T* values = out.mutable_data_ptr<T>();
    for (int64_t i = 0; i < cells; ++i) {
        values[i] = static_cast<T>(sums[i]);
    }
    return out;
}

template <typename T>
std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& z, const Tensor& means, const Tensor& log_var,
                                            const Tensor& gradient) {
    const MixtureOperands<T> operands(z, means, log_var);
    const Tensor upstream = torch::stable::contiguous(gradient);
    const T* upstream_data = upstream.const_data_ptr<T>();
    MixtureGradients<T> gradients(operands);
    const auto run = SEEGERA_CHOOSE(component_gradient_rows<T>);
    for_each_range(operands.rows(), operands.task_rows(), [&](int64_t begin, int64_t end) {
        std::vector<T> scratch(operands.gradient_scratch());
        run(operands.p, gradients.g, begin, end, upstream_data, scratch.data());
    });
    return {gradients.z, gradients.means, gradients.log_var};
}

Tensor component_log_density(const Tensor& z, const Tensor& means, const Tensor& log_var) {
    return is_double(z) ? forward<double>(z, means, log_var) : forward<float>(z, means, log_var);
}

std::tuple<Tensor, Tensor, Tensor> component_log_density_backward(const Tensor& z, const Tensor& means,
                                                                  const Tensor& log_var, const Tensor& gradient) {
    return is_double(z) ? backward<double>(z, means, log_var, gradient) : backward<float>(z, means, log_var, gradient);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("component_log_density", TORCH_BOX(&seegera::component_log_density));
    m.impl("component_log_density_backward", TORCH_BOX(&seegera::component_log_density_backward));
}

#endif
