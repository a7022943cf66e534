#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>

#include "launch.cuh"
#include "warp.cuh"

namespace seegera::cuda {

constexpr int kScanThreads = 256;
constexpr int64_t kScanBlocks = 1024;  // at most: each block reads the totals of those before it
constexpr int64_t kScanShare = 1024;   // at least: the numbers of a block, a multiple of kScanThreads

// The total of each block's share. totals: [blocks]
static __global__ void __launch_bounds__(kScanThreads)
    scan_totals_kernel(const int64_t* __restrict__ numbers, int64_t count, int64_t share,
                       int64_t* __restrict__ totals) {
    const int64_t begin = blockIdx.x * share;
    const int64_t end = begin + share < count ? begin + share : count;
    int64_t sum = 0, total;
    for (int64_t i = begin + threadIdx.x; i < end; i += kScanThreads) sum += numbers[i];
    block_inclusive_sum<kScanThreads>(sum, total);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

// In place: each number becomes the sum of all up to and including it.
static __global__ void __launch_bounds__(kScanThreads)
    scan_kernel(int64_t* __restrict__ numbers, int64_t count, int64_t share, const int64_t* __restrict__ totals) {
    const int64_t begin = blockIdx.x * share;
    const int64_t end = begin + share < count ? begin + share : count;
    int64_t sum = 0, before;
    for (int64_t block = threadIdx.x; block < blockIdx.x; block += kScanThreads) sum += totals[block];
    block_inclusive_sum<kScanThreads>(sum, before);
    for (int64_t first = begin; first < end; first += kScanThreads) {
        const int64_t i = first + threadIdx.x;
        int64_t total;
        const int64_t inclusive = block_inclusive_sum<kScanThreads>(i < end ? numbers[i] : 0, total);
        if (i < end) numbers[i] = before + inclusive;
        before += total;
    }
}

// numbers [count], on the device, become their running sums. `like` is an int64 tensor there.
inline void running_sums(const Launcher& launch, const torch::stable::Tensor& like, int64_t* numbers, int64_t count) {
    const int64_t even = ceil_div(count, kScanBlocks);
    const int64_t share = even > kScanShare ? ceil_div(even, kScanThreads) * kScanThreads : kScanShare;
    const int64_t blocks = ceil_div(count, share);
    torch::stable::Tensor totals = torch::stable::new_empty(like, {blocks});
    int64_t* of_block = totals.mutable_data_ptr<int64_t>();
    // The first block needs no total.
    if (blocks > 1) launch(scan_totals_kernel, blocks, kScanThreads, numbers, count, share, of_block);
    launch(scan_kernel, blocks, kScanThreads, numbers, count, share, of_block);
}

}  // namespace seegera::cuda
