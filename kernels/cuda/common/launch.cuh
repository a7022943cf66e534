#pragma once

#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>
#include <utility>

namespace seegera::cuda {

constexpr int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Starts kernels on the device of a tensor, which is the current one while this object lives, and on the stream that
// PyTorch has current there. All launches go through it.
class Launcher {
 public:
    explicit Launcher(const torch::stable::Tensor& tensor) : guard_(tensor.get_device_index()) {
        void* stream = nullptr;
        TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
        stream_ = static_cast<cudaStream_t>(stream);
    }

    // A grid of no blocks is no work. An error of the launch is an exception here; one while the kernel runs comes
    // with a later call.
    template <typename... Parameters, typename... Arguments>
    void operator()(void (*kernel)(Parameters...), int64_t blocks, int threads, Arguments&&... arguments) const {
        if (blocks == 0) return;
        STD_TORCH_CHECK(blocks <= INT32_MAX, "seegera_fast: a CUDA grid of ", blocks, " blocks is above the limit of ",
                        INT32_MAX);
        cudaLaunchConfig_t grid = {};
        grid.gridDim = dim3(static_cast<unsigned int>(blocks));
        grid.blockDim = dim3(static_cast<unsigned int>(threads));
        grid.stream = stream_;
        STD_CUDA_CHECK(cudaLaunchKernelEx(&grid, kernel, std::forward<Arguments>(arguments)...));
    }

 private:
    torch::stable::accelerator::DeviceGuard guard_;
    cudaStream_t stream_ = nullptr;
};

}  // namespace seegera::cuda
