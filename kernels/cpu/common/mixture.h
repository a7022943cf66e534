// Normal log densities of samples under their components, row by row: what mixture_density and component_log_density
// share.
//
// Floor: memory. A row is (J + (K + J) + V) d numbers, V the draws of log_var (1 or K + J). Forward reads it once;
// backward reads it once more and writes as much. A row (32 kB at d = 512, J = K = 5) stays in the nearest caches while
// its J (K + 1) densities are summed, about 3 operations per number and pair.
#pragma once

#include <cstdint>

#include "isa.h"

namespace seegera {

template <typename T>
struct Mixture {
    const T* z;         // [n, J, d]
    const T* means;     // [n, K + J, d]
    const T* log_var;   // [n, V, d]
    int64_t samples;    // J
    int64_t extra;      // K
    int64_t variances;  // V: 1 or K + J
    int64_t width;      // d
};

template <typename T>
struct MixtureGradient {
    T* z;
    T* means;
    T* log_var;
    bool streamed;  // larger than the caches, and every line of it aligned to cache lines
};

// The gradient is computed for blocks of so many vectors of columns: sums stay in registers and in a few lines of
// scratch. The lines of the draws may lie a power of two apart and then compete for the same sets of a cache, so only a
// part of each is read at a time.
constexpr int kMixtureBlock = 2;

}  // namespace seegera

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

// densities [J, K + 1] = log N(z_j; mu_k, exp(log_var_k)) of one row. scratch: deviations [V, stride], normalisers [V].
template <typename T>
void row_densities(const Mixture<T>&, int64_t row, T* deviations, int64_t stride, double* normalisers,
                   double* densities);
// Gradients of sum_jk weights[j, k] densities[j, k] of one row. scratch: weights [J, K + 1], totals [K + J], gradients
// [J, kMixtureBlock vectors].
template <typename T>
void row_gradient(const Mixture<T>&, const MixtureGradient<T>&, int64_t row, const T* weights, T* scratch);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <vector>

#include "memory.h"
#include "parallel.h"

namespace seegera {

// Rows of a task: about 2^16 numbers.
inline int64_t mixture_task_rows(int64_t samples, int64_t draws, int64_t width) {
    return std::max<int64_t>(1, (int64_t{1} << 16) / std::max<int64_t>(1, (samples + 2 * draws) * width));
}

// The operands, contiguous for as long as this lives.
template <typename T>
struct MixtureOperands {
    torch::stable::Tensor z, means, log_var;
    Mixture<T> p;

    MixtureOperands(const torch::stable::Tensor& z_, const torch::stable::Tensor& means_,
                    const torch::stable::Tensor& log_var_)
        : z(torch::stable::contiguous(z_)),
          means(torch::stable::contiguous(means_)),
          log_var(torch::stable::contiguous(log_var_)) {
        p.z = z.const_data_ptr<T>();
        p.means = means.const_data_ptr<T>();
        p.log_var = log_var.const_data_ptr<T>();
        p.samples = z.size(1);
        p.extra = means.size(1) - z.size(1);
        p.variances = log_var.size(1);
        p.width = z.size(2);
    }

    int64_t rows() const { return z.size(0); }
    int64_t components() const { return p.extra + 1; }
    int64_t task_rows() const { return mixture_task_rows(p.samples, p.extra + p.samples, p.width); }
    // Numbers of scratch for row_gradient, whatever the instruction set.
    int64_t gradient_scratch() const {
        return p.samples * components() + p.extra + p.samples + p.samples * kMixtureBlock * kMostLanes;
    }
    // Numbers per row of deviations: whole vectors of any instruction set.
    int64_t stride() const { return (p.width + kMostLanes - 1) / kMostLanes * kMostLanes; }

 private:
    static constexpr int64_t kMostLanes = kMostVectorBytes / sizeof(T);
};

// Gradients like the operands, not yet filled.
template <typename T>
struct MixtureGradients {
    static torch::stable::Tensor new_like(const torch::stable::Tensor& t) {
        return new_tensor(t, {t.size(0), t.size(1), t.size(2)});
    }
    torch::stable::Tensor z, means, log_var;
    MixtureGradient<T> g;

    explicit MixtureGradients(const MixtureOperands<T>& operands)
        : z(new_like(operands.z)),
          means(new_like(operands.means)),
          log_var(new_like(operands.log_var)),
          g{z.template mutable_data_ptr<T>(), means.template mutable_data_ptr<T>(),
            log_var.template mutable_data_ptr<T>(), beyond_caches(means)} {
        for (torch::stable::Tensor* gradient : {&z, &means, &log_var}) {
            g.streamed = g.streamed && lines_aligned(*gradient);
        }
    }
};

// Runs run(p, row_begin, row_end, deviations, stride, scratch, sums, more...) over all rows. Each task has separate
// sums [cells], which are added up in the order of the tasks.
template <typename T, typename Run, typename... More>
std::vector<double> sum_over_mixture_tasks(const MixtureOperands<T>& operands, int64_t cells, const Run& run,
                                           More... more) {
    const Mixture<T>& p = operands.p;
    const int64_t rows = operands.rows();
    const int64_t task_rows = operands.task_rows();
    const int64_t tasks = (rows + task_rows - 1) / task_rows;
    std::vector<double> sums(tasks * cells);
    for_each_task(tasks, [&](int64_t task) {
        std::vector<T> deviations(p.variances * operands.stride());
        std::vector<double> scratch(p.variances + p.samples * operands.components());
        run(p, task * task_rows, std::min(rows, (task + 1) * task_rows), deviations.data(), operands.stride(),
            scratch.data(), sums.data() + task * cells, more...);
    });
    for (int64_t task = 1; task < tasks; ++task) {
        for (int64_t i = 0; i < cells; ++i) {
            sums[i] += sums[task * cells + i];
        }
    }
    sums.resize(cells);
    return sums;
}

}  // namespace seegera

#endif
