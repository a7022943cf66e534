// Dense products by the BLAS that torch carries, for the registration half of a kernel file.
#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>

#include "parallel.h"

namespace seegera {

template <typename T>
constexpr torch::headeronly::ScalarType kScalarType =
    sizeof(T) == sizeof(float) ? torch::headeronly::ScalarType::Float : torch::headeronly::ScalarType::Double;

// Strides in numbers.
template <typename T>
torch::stable::Tensor matrix(const T* data, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    return torch::stable::from_blob(const_cast<T*>(data), {rows, columns}, {row_stride, column_stride},
                                    torch::stable::Device(torch::headeronly::DeviceType::CPU), kScalarType<T>);
}

// out = a b
inline void multiply(const torch::stable::Tensor& out, const torch::stable::Tensor& a, const torch::stable::Tensor& b) {
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(out.get(), a.get(), b.get()));
}

// out = beta in + alpha a b; in may be out, and is not read where beta is 0.
inline void multiply_add(const torch::stable::Tensor& out, double beta, const torch::stable::Tensor& in, double alpha,
                         const torch::stable::Tensor& a, const torch::stable::Tensor& b) {
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(out.get(), in.get(), a.get(), b.get(), beta, alpha));
}

// Calls work(next) on every thread; next() counts the tasks up. A product in there runs on one thread, so that its bits
// do not depend on how many there are: also where there is but one task, which for_each_task runs outside.
template <typename Work>
void on_every_thread(const Work& work) {
    std::atomic<int64_t> counter{0};
    torch::stable::parallel_for(0, torch::stable::get_num_threads(), 1,
                                [&](int64_t, int64_t) { work([&] { return counter.fetch_add(1); }); });
}

// for_each_task for tasks with products in them.
template <typename Run>
void for_each_product(int64_t count, const Run& run) {
    on_every_thread([&](const auto& next) {
        for (int64_t task = next(); task < count; task = next()) {
            run(task);
        }
    });
}

}  // namespace seegera
