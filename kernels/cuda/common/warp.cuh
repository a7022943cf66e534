#pragma once

#include <cstdint>

namespace seegera::cuda {

constexpr int kWarp = 32;
constexpr unsigned int kAllLanes = 0xffffffffu;

__device__ __forceinline__ int lane_number() { return threadIdx.x % kWarp; }

// How many of the lanes below this one have their bit set.
__device__ __forceinline__ int count_below(unsigned int ballot) { return __popc(ballot & ((1u << lane_number()) - 1)); }

template <typename T>
__device__ __forceinline__ T shuffle_xor(T value, int distance) {
    return __shfl_xor_sync(kAllLanes, value, distance);
}

// The sum over the lanes of a warp, in each of them. T: a number, or a type with operator+ and an overload of
// shuffle_xor.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        value = value + shuffle_xor(value, distance);
    }
    return value;
}

// The sum over the lanes up to and including this one.
template <typename T>
__device__ __forceinline__ T warp_inclusive_sum(T value) {
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
        const T below = __shfl_up_sync(kAllLanes, value, distance);
        if (lane_number() >= distance) value += below;
    }
    return value;
}

// The same over a block of kThreads; `total` is the sum over all of it. Every thread of the block has to come here.
template <int kThreads, typename T>
__device__ __forceinline__ T block_inclusive_sum(T value, T& total) {
    constexpr int kWarps = kThreads / kWarp;
    static_assert(kThreads % kWarp == 0 && kWarps <= kWarp, "a block of whole warps, at most a warp of them");
    __shared__ T of_warp[kWarps];
    const int warp = threadIdx.x / kWarp;
    value = warp_inclusive_sum(value);
    if (lane_number() == kWarp - 1) of_warp[warp] = value;
    __syncthreads();
    T before = 0, all = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) {
        if (other < warp) before += of_warp[other];
        all += of_warp[other];
    }
    __syncthreads();
    total = all;
    return before + value;
}

}  // namespace seegera::cuda
