#pragma once

#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>

namespace seegera::cuda {

constexpr int kWarp = 32;

inline int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Makes the device of a tensor the current one while it lives, and offers the stream that PyTorch has current there.
class Launch {
 public:
    explicit Launch(const torch::stable::Tensor& tensor) : guard_(tensor.get_device_index()) {
        void* stream = nullptr;
        STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
        stream_ = static_cast<cudaStream_t>(stream);
    }

    cudaStream_t stream() const { return stream_; }

 private:
    torch::stable::accelerator::DeviceGuard guard_;
    cudaStream_t stream_ = nullptr;
};

// The number of blocks of `block` threads that together have at least `threads`.
inline unsigned int num_blocks(int64_t threads, int block) {
    const int64_t blocks = ceil_div(threads, block);
    STD_TORCH_CHECK(blocks <= INT32_MAX, "seegera_fast: a CUDA grid of ", blocks, " blocks is above the limit of ",
                    INT32_MAX);
    return static_cast<unsigned int>(blocks);
}

}  // namespace seegera::cuda
