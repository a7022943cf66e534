// out [count] = 1 for exactly `chosen` elements, those of the smallest random keys, the first ones where keys are
// equal.
//
// An element's place in the order is a number of 124 bits: its key, 62 bits of counter i of the stream, then i itself.
// A histogram of the upper bits of all places finds the bucket in which the last chosen one lies; the elements of that
// bucket, about count / 2048, are collected, and one block narrows them down, 11 bits at a time, until one is left.
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
__extension__ typedef unsigned __int128 Place;
typedef unsigned long long Count;

constexpr int kThreads = 256;
constexpr int kSelectThreads = 1024;
constexpr int kKeyBits = 62;
constexpr int kPlaceBits = 2 * kKeyBits;
constexpr int kDigitBits = 11;
constexpr int kBuckets = 1 << kDigitBits;
constexpr int kFixedByBucket = kPlaceBits - kDigitBits;  // bits of a place below those of its bucket

// The elements of a draw. Blocks share them out in turn: however many there are, at most kMostBlocks histograms are
// added up.
constexpr int64_t kMostBlocks = 512;
constexpr int64_t kBlockElements = 8 * kThreads;

struct Elements {
    const int64_t* __restrict__ seed;
    uint32_t stream;
    int64_t count;
    int64_t chosen;  // 1 to count

    __device__ __forceinline__ Place place(int64_t element) const {
        const PhiloxWords words = philox(*seed, element, 0, stream << 24);
        const uint64_t key = (static_cast<uint64_t>(words.word[0]) << 30) ^ (words.word[1] >> 2);
        return static_cast<Place>(key) << kKeyBits | static_cast<Place>(element);
    }
};

// What the kernels leave each other; zeros at first.
struct Shared {
    Count* __restrict__ histogram;     // [kBuckets]: elements by the upper bits of their places
    Count* __restrict__ collected;     // [1]: elements in the bucket of the last chosen one
    Count* __restrict__ last;          // [2]: key and number of the last chosen one
    int64_t* __restrict__ candidates;  // [capacity]: elements of the bucket, in any order
    int64_t capacity;
};

// The bucket with the element of a rank, from 1 on.
struct Bucket {
    Count number;
    Count before;  // elements in the buckets before it
    Count inside;  // elements in it
};

// Every thread of a block of kSize has to come here, with the same arguments, and gets the same answer.
template <int kSize>
__device__ Bucket find_bucket(const Count* histogram, Count rank) {
    constexpr int kOwn = kBuckets / kSize;
    __shared__ Bucket found;
    const int first = threadIdx.x * kOwn;
    Count own = 0, total;
    for (int i = 0; i < kOwn; ++i) own += histogram[first + i];
    Count before = block_inclusive_sum<kSize>(own, total) - own;
    if (before < rank && rank <= before + own) {
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
        atomicAdd(&histogram[static_cast<int>(elements.place(i) >> kFixedByBucket)], 1u);
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
        if (static_cast<Count>(elements.place(i) >> kFixedByBucket) == bucket) {
            const int64_t at = static_cast<int64_t>(atomicAdd(shared.collected, Count(1)));
            if (at < shared.capacity) shared.candidates[at] = i;
        }
    }
}

// One block. Where the candidates did not fit it goes through all elements: slow, but exact, and next to never.
__global__ void __launch_bounds__(kSelectThreads) select_kernel(const Elements elements, const Shared shared) {
    __shared__ Count histogram[kBuckets];
    const int64_t collected = static_cast<int64_t>(*shared.collected);
    const bool fits = collected <= shared.capacity;
    const int64_t count = fits ? collected : elements.count;
    Bucket bucket = find_bucket<kSelectThreads>(shared.histogram, elements.chosen);
    Count rank = elements.chosen - bucket.before;
    // The bits of the place that is looked for, from bit `fixed` on.
    int fixed = kFixedByBucket;
    Place found = static_cast<Place>(bucket.number) << fixed;
    while (bucket.inside > 1 && fixed > 0) {
        const int shift = fixed > kDigitBits ? fixed - kDigitBits : 0;
        for (int i = threadIdx.x; i < kBuckets; i += kSelectThreads) histogram[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < count; i += kSelectThreads) {
            const Place place = elements.place(fits ? shared.candidates[i] : i);
            if ((place ^ found) >> fixed == 0)
                atomicAdd(&histogram[static_cast<Count>(place >> shift) % kBuckets], Count(1));
        }
        __syncthreads();
        bucket = find_bucket<kSelectThreads>(histogram, rank);
        rank -= bucket.before;
        found |= static_cast<Place>(bucket.number) << shift;
        fixed = shift;
    }
    for (int64_t i = threadIdx.x; i < count; i += kSelectThreads) {
        const Place place = elements.place(fits ? shared.candidates[i] : i);
        if ((place ^ found) >> fixed == 0) {
            shared.last[0] = static_cast<Count>(place >> kKeyBits);
            shared.last[1] = static_cast<Count>(place) & ((Count(1) << kKeyBits) - 1);
        }
    }
}

__global__ void __launch_bounds__(kThreads)
    mark_kernel(const Elements elements, const Shared shared, bool* __restrict__ out) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= elements.count) return;
    out[i] = elements.place(i) <= (static_cast<Place>(shared.last[0]) << kKeyBits | shared.last[1]);
}

// seed: one int64 element. Returns bool [count].
Tensor draw_subset(const Tensor& seed, int64_t stream, int64_t count, int64_t chosen) {
    constexpr auto kBool = torch::headeronly::ScalarType::Bool;
    if (chosen == 0) return torch::stable::new_zeros(seed, {count}, kBool);
    const Launcher launch(seed);
    Tensor out = torch::stable::new_empty(seed, {count}, kBool);
    Tensor numbers = torch::stable::new_zeros(seed, {kBuckets + 3});
    // Four times as many as are expected.
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
