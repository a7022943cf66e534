// out [count] = 1 for exactly `chosen` elements, those of the smallest random keys, the first ones where keys are
// equal.
//
// Element i is ordered by a sort key of 124 bits: its random key, 62 bits of counter i of the stream, then i itself.
// A histogram of the upper bits of all sort keys finds the bucket in which the last chosen one lies; the elements of
// that bucket, about count / 2048, are collected, and one block narrows them down, 11 bits at a time, until one is
// left.
//
// Floor: a Philox counter an element in each of three passes (about 80 instructions, cheaper than 8 bytes of memory),
// and one byte written. Integers alone are added up, so the outcome does not depend on the order of the threads.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <cstdint>

#include "common/launch.cuh"
#include "common/philox.cuh"
#include "common/warp.cuh"

namespace seegera::cuda {
namespace {

using torch::stable::Tensor;
__extension__ typedef unsigned __int128 SortKey;
typedef unsigned long long Count;

constexpr int kThreads = 256;
constexpr int kSelectThreads = 1024;
constexpr int kKeyBits = 62;
constexpr int kSortKeyBits = 2 * kKeyBits;
constexpr int kDigitBits = 11;
constexpr int kBuckets = 1 << kDigitBits;
constexpr int kFixedByBucket = kSortKeyBits - kDigitBits;  // bits of a sort key below those of its bucket

// The elements of a draw. At most kMostBlocks blocks share them, so that no more histograms are added up.
constexpr int64_t kMostBlocks = 512;
constexpr int64_t kBlockElements = 8 * kThreads;

struct Elements {
    const int64_t* __restrict__ seed;
    uint32_t stream;
    int64_t count;
    int64_t chosen;  // 1 to count

    __device__ __forceinline__ SortKey sort_key(int64_t element) const {
        const PhiloxWords words = philox(*seed, element, 0, stream << 24);
        const uint64_t key = (static_cast<uint64_t>(words.word[0]) << 30) ^ (words.word[1] >> 2);
        return static_cast<SortKey>(key) << kKeyBits | static_cast<SortKey>(element);
    }
};

// What the kernels pass on to the next; zeros at first.
struct Shared {
    Count* __restrict__ histogram;     // [kBuckets]: elements by the upper bits of their sort keys
    Count* __restrict__ collected;     // [1]: elements in the bucket of the last chosen one
    Count* __restrict__ last;          // [2]: key and number of the last chosen one
    int64_t* __restrict__ candidates;  // [capacity]: elements of the bucket, in any order
    int64_t capacity;
};

// The bucket that holds the element of a rank; ranks count from 1.
struct Bucket {
    Count number;
    Count before;  // elements in the buckets before it
    Count inside;  // elements in it
};

// Every thread of a block of kSize has to come here, with the same arguments, and gets the same answer.
template <int kSize>
__device__ Bucket find_bucket(const Count* histogram, Count rank) {
    constexpr int kEach = kBuckets / kSize;
    __shared__ Bucket found;
    const int first = threadIdx.x * kEach;
    Count sum = 0, total;
    for (int i = 0; i < kEach; ++i) sum += histogram[first + i];
    Count before = block_inclusive_sum<kSize>(sum, total) - sum;
    if (before < rank && rank <= before + sum) {
        int i = first;
        while (before + histogram[i] < rank) before += histogram[i++];
        found = {static_cast<Count>(i), before, histogram[i]};
    }
    __syncthreads();
    const Bucket answer = found;
    __syncthreads();
    return answer;
}

__global__ void __launch_bounds__(kThreads) count_kernel(const Elements elements, const Shared shared) {
    __shared__ unsigned int histogram[kBuckets];
    for (int i = threadIdx.x; i < kBuckets; i += kThreads) histogram[i] = 0;
    __syncthreads();
    const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements.count; i += step) {
        atomicAdd(&histogram[static_cast<int>(elements.sort_key(i) >> kFixedByBucket)], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kBuckets; i += kThreads) {
        if (histogram[i] > 0) atomicAdd(&shared.histogram[i], static_cast<Count>(histogram[i]));
    }
}

__global__ void __launch_bounds__(kThreads) collect_kernel(const Elements elements, const Shared shared) {
    const Count bucket = find_bucket<kThreads>(shared.histogram, elements.chosen).number;
    const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements.count; i += step) {
        if (static_cast<Count>(elements.sort_key(i) >> kFixedByBucket) == bucket) {
            const int64_t at = static_cast<int64_t>(atomicAdd(shared.collected, Count(1)));
            if (at < shared.capacity) shared.candidates[at] = i;
        }
    }
}

// One block. Where the candidates did not fit it goes through all elements: slow, but exact, and very rare.
__global__ void __launch_bounds__(kSelectThreads) select_kernel(const Elements elements, const Shared shared) {
    __shared__ Count histogram[kBuckets];
    const int64_t collected = static_cast<int64_t>(*shared.collected);
    const bool fits = collected <= shared.capacity;
    const int64_t count = fits ? collected : elements.count;
    Bucket bucket = find_bucket<kSelectThreads>(shared.histogram, elements.chosen);
    Count rank = elements.chosen - bucket.before;
    // The sort key that is looked for; its bits from bit `fixed` on are known.
    int fixed = kFixedByBucket;
    SortKey found = static_cast<SortKey>(bucket.number) << fixed;
    while (bucket.inside > 1 && fixed > 0) {
        const int shift = fixed > kDigitBits ? fixed - kDigitBits : 0;
        for (int i = threadIdx.x; i < kBuckets; i += kSelectThreads) histogram[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < count; i += kSelectThreads) {
            const SortKey key = elements.sort_key(fits ? shared.candidates[i] : i);
            if ((key ^ found) >> fixed == 0)
                atomicAdd(&histogram[static_cast<Count>(key >> shift) % kBuckets], Count(1));
        }
        __syncthreads();
        bucket = find_bucket<kSelectThreads>(histogram, rank);
        rank -= bucket.before;
        found |= static_cast<SortKey>(bucket.number) << shift;
        fixed = shift;
    }
    for (int64_t i = threadIdx.x; i < count; i += kSelectThreads) {
        const SortKey key = elements.sort_key(fits ? shared.candidates[i] : i);
        if ((key ^ found) >> fixed == 0) {
            shared.last[0] = static_cast<Count>(key >> kKeyBits);
            shared.last[1] = static_cast<Count>(key) & ((Count(1) << kKeyBits) - 1);
        }
    }
}

__global__ void __launch_bounds__(kThreads)
    mark_kernel(const Elements elements, const Shared shared, bool* __restrict__ out) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= elements.count) return;
    out[i] = elements.sort_key(i) <= (static_cast<SortKey>(shared.last[0]) << kKeyBits | shared.last[1]);
}

// seed: one int64 element. Returns bool [count].
Tensor draw_subset(const Tensor& seed, int64_t stream, int64_t count, int64_t chosen) {
    constexpr auto kBool = torch::headeronly::ScalarType::Bool;
    if (chosen == 0) return torch::stable::new_zeros(seed, {count}, kBool);
    const Launcher launch(seed);
    Tensor out = torch::stable::new_empty(seed, {count}, kBool);
    Tensor numbers = torch::stable::new_zeros(seed, {kBuckets + 3});
    // Four times the expected number of candidates.
    const int64_t capacity = count / (kBuckets / 4);
    Tensor candidates = torch::stable::new_empty(seed, {capacity});
    Count* const zeros = reinterpret_cast<Count*>(numbers.mutable_data_ptr<int64_t>());
    const Shared shared = {zeros, zeros + kBuckets, zeros + kBuckets + 1, candidates.mutable_data_ptr<int64_t>(),
                           capacity};
    const Elements elements = {seed.const_data_ptr<int64_t>(), static_cast<uint32_t>(stream), count, chosen};
    const int64_t blocks = std::min(ceil_div(count, kBlockElements), kMostBlocks);
    launch(count_kernel, blocks, kThreads, elements, shared);
    launch(collect_kernel, blocks, kThreads, elements, shared);
    launch(select_kernel, 1, kSelectThreads, elements, shared);
    launch(mark_kernel, ceil_div(count, kThreads), kThreads, elements, shared, out.mutable_data_ptr<bool>());
    return out;
}

}  // namespace
}  // namespace seegera::cuda

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CUDA, m) { m.impl("draw_subset", TORCH_BOX(&seegera::cuda::draw_subset)); }
