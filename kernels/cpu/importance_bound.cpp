// logsumexp_j (log_likelihood_j + warmup (log_prior_j - log_mixture_j)) - log J, and its gradient.
//
// J numbers: the cost is that of the call, one instead of the eight of the plain form.
#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "common/memory.h"

namespace seegera {
namespace {

using torch::stable::Tensor;

struct Samples {
    double total;                 // logsumexp of the terms
    std::vector<double> weights;  // their softmax: the gradient of the total; zeros where all terms are -inf
};

// factor * value, and 0 where the factor is 0, even if the value is infinite or NaN.
double times(double factor, double value) { return factor == 0 ? 0 : factor * value; }

template <typename T>
Samples weigh(const Tensor& log_likelihood, const Tensor& log_prior, const Tensor& log_mixture, double warmup) {
    const Tensor parts[] = {torch::stable::contiguous(log_likelihood), torch::stable::contiguous(log_prior),
                            torch::stable::contiguous(log_mixture)};
    const T* likelihood = parts[0].const_data_ptr<T>();
    const T* prior = parts[1].const_data_ptr<T>();
    const T* mixture = parts[2].const_data_ptr<T>();
    Samples samples{0, std::vector<double>(log_likelihood.size(0))};
    double highest = -INFINITY;
    for (size_t j = 0; j < samples.weights.size(); ++j) {
        const double term = likelihood[j] + times(warmup, static_cast<double>(prior[j]) - mixture[j]);
        samples.weights[j] = term;
        // A NaN is kept, so that the result is NaN, too.
        highest = term <= highest ? highest : term;
    }
    const double subtracted = highest == -INFINITY ? 0 : highest;
    double sum = 0;
    for (double& term : samples.weights) {
        term = std::exp(term - subtracted);
        sum += term;
    }
    samples.total = highest + std::log(sum);
    for (double& weight : samples.weights) {
        weight /= sum == 0 ? 1 : sum;
    }
    return samples;
}

Samples weigh_any(const Tensor& log_likelihood, const Tensor& log_prior, const Tensor& log_mixture,
                  const Tensor& warmup) {
    const double factor = *warmup.const_data_ptr<double>();
    return is_double(log_likelihood) ? weigh<double>(log_likelihood, log_prior, log_mixture, factor)
                                     : weigh<float>(log_likelihood, log_prior, log_mixture, factor);
}

void put(Tensor& tensor, int64_t index, double value) {
    if (is_double(tensor)) {
        tensor.mutable_data_ptr<double>()[index] = value;
    } else {
        tensor.mutable_data_ptr<float>()[index] = static_cast<float>(value);
    }
}

Tensor importance_bound(const Tensor& log_likelihood, const Tensor& log_prior, const Tensor& log_mixture,
                        const Tensor& warmup) {
    const Samples samples = weigh_any(log_likelihood, log_prior, log_mixture, warmup);
    Tensor out = torch::stable::new_empty(log_likelihood, {});
    put(out, 0, samples.total - std::log(static_cast<double>(samples.weights.size())));
    return out;
}

std::tuple<Tensor, Tensor, Tensor> importance_bound_backward(const Tensor& log_likelihood, const Tensor& log_prior,
                                                             const Tensor& log_mixture, const Tensor& warmup,
                                                             const Tensor& gradient) {
    const Samples samples = weigh_any(log_likelihood, log_prior, log_mixture, warmup);
    const double factor = *warmup.const_data_ptr<double>();
    const double upstream =
        is_double(gradient) ? *gradient.const_data_ptr<double>() : *gradient.const_data_ptr<float>();
    const int64_t count = log_likelihood.size(0);
    Tensor gradients[] = {torch::stable::new_empty(log_likelihood, {count}),
                          torch::stable::new_empty(log_likelihood, {count}),
                          torch::stable::new_empty(log_likelihood, {count})};
    for (int64_t j = 0; j < count; ++j) {
        const double slope = times(upstream, samples.weights[j]);
        put(gradients[0], j, slope);
        put(gradients[1], j, times(factor, slope));
        put(gradients[2], j, times(-factor, slope));
    }
    return {gradients[0], gradients[1], gradients[2]};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("importance_bound", TORCH_BOX(&seegera::importance_bound));
    m.impl("importance_bound_backward", TORCH_BOX(&seegera::importance_bound_backward));
}

#endif
