// What kernels/cuda uses of CUDA, for a C++ compiler and a CPU: put in front of a .cu file with -include, and found by
// its #include <cuda_runtime.h>. The threads of a block are fibers (threads.cpp), so that barriers, shuffles and
// ballots are real meetings of threads; blocks run one after another.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

// The operators go to a library of their own, as kernels for CPU tensors.
#undef STABLE_TORCH_LIBRARY_IMPL
#define STABLE_TORCH_LIBRARY_IMPL(library, key, m) _STABLE_TORCH_LIBRARY_IMPL(seegera_cuda_on_cpu, CPU, m, C10_UID)

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks run one after another, and all in one thread of the CPU.
#define __shared__ static

struct uint3 {
    unsigned int x, y, z;
};

struct dim3 : uint3 {
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : uint3{x, y, z} {}
};

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// --- what a thread can do
// ---------------------------------------------------------------------------------------------

namespace cuda_on_cpu {

// Waits until all 32 lanes of the warp have come to a call of the same name; gives the values of all of them, which
// stay valid until this thread comes to its next meeting but one.
const uint64_t* meet_warp(const char* name, unsigned int mask, uint64_t value);

template <typename T>
T exchange(const char* name, unsigned int mask, T value, int source) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a lane hands over 64 bits at most");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    const uint64_t* values = meet_warp(name, mask, bits);
    std::memcpy(&value, &values[source], sizeof(T));
    return value;
}

inline int lane() { return threadIdx.x % 32; }

}  // namespace cuda_on_cpu

void __syncthreads();

template <typename T>
T __shfl_sync(unsigned int mask, T value, int source) {
    return cuda_on_cpu::exchange("__shfl_sync", mask, value, source & 31);
}

template <typename T>
T __shfl_xor_sync(unsigned int mask, T value, int distance) {
    return cuda_on_cpu::exchange("__shfl_xor_sync", mask, value, (cuda_on_cpu::lane() ^ distance) & 31);
}

template <typename T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int distance) {
    const int source = cuda_on_cpu::lane() - static_cast<int>(distance);
    return cuda_on_cpu::exchange("__shfl_up_sync", mask, value, source < 0 ? cuda_on_cpu::lane() : source);
}

template <typename T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int distance) {
    const int source = cuda_on_cpu::lane() + static_cast<int>(distance);
    return cuda_on_cpu::exchange("__shfl_down_sync", mask, value, source > 31 ? cuda_on_cpu::lane() : source);
}

inline unsigned int __ballot_sync(unsigned int mask, int predicate) {
    const uint64_t* values = cuda_on_cpu::meet_warp("__ballot_sync", mask, predicate != 0);
    unsigned int ballot = 0;
    for (int lane = 0; lane < 32; ++lane) ballot |= static_cast<unsigned int>(values[lane]) << lane;
    return ballot;
}

inline void __syncwarp(unsigned int mask = 0xffffffffu) { cuda_on_cpu::meet_warp("__syncwarp", mask, 0); }

inline int __popc(unsigned int bits) { return __builtin_popcount(bits); }

inline unsigned int __umulhi(unsigned int a, unsigned int b) { return static_cast<uint64_t>(a) * b >> 32; }

// Of integers: the kernels have no others.
template <typename T>
T atomicAdd(T* address, T value) {
    static_assert(std::is_integral_v<T>, "floating-point atomics have no fixed order of sums");
    return std::exchange(*address, *address + value);
}

using std::fabs;
using std::sqrt;
using std::tanh;

// --- what the host can do
// ---------------------------------------------------------------------------------------------

typedef void* cudaStream_t;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
};

namespace cuda_on_cpu {

cudaError_t run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel);

}  // namespace cuda_on_cpu

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    return [&](Parameters... copies) {
        return cuda_on_cpu::run_grid(config->gridDim, config->blockDim, [=] { kernel(copies...); });
    }(std::forward<Arguments>(arguments)...);
}
