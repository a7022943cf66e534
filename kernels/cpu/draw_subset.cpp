// out [count] = 1 for exactly `chosen` elements, those of the smallest random keys, the first ones where keys are
// equal.
//
// Key of element i: 62 bits of counter i of the stream. A histogram of the keys' upper bits finds the bucket in which
// the last chosen one lies, and a sort of that bucket alone (about count / 4096 keys) finds the key itself.
//
// Floor: count Philox counters, count keys written and read twice. No sort over all keys, and the outcome depends on
// keys and positions only, not on the order in which threads see them.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

constexpr int kKeyBits = 62;
constexpr int kBucketBits = 12;
[[maybe_unused]] constexpr int64_t kBuckets = int64_t{1} << kBucketBits;

inline int64_t bucket_of(int64_t key) { return key >> (kKeyBits - kBucketBits); }

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/philox.h"

namespace seegera {
namespace SEEGERA_ISA {

void draw_keys(int64_t seed, int64_t stream, int64_t begin, int64_t end, int64_t* keys, int64_t* histogram) {
    const PhiloxKey key(seed);
    const uint32_t draw = philox_draw(static_cast<uint32_t>(stream), 0);
    for (int64_t i = begin; i < end; i += kCounters) {
        Words words[4];
        philox_rows(key, i, draw, 0, words);
        const Words drawn = ((words[0] & 0xffffffff) << 30) ^ ((words[1] & 0xffffffff) >> 2);
        const int64_t lanes = kCounters < end - i ? kCounters : end - i;
        __builtin_memcpy(keys + i, &drawn, lanes * sizeof(int64_t));
        for (int64_t lane = 0; lane < lanes; ++lane) {
            ++histogram[bucket_of(keys[i + lane])];
        }
    }
}

// The elements up to (last_key, last_index) in the order of keys, then positions.
void mark_chosen(const int64_t* keys, int64_t begin, int64_t end, int64_t last_key, int64_t last_index, uint8_t* out) {
    for (int64_t i = begin; i < end; ++i) {
        out[i] = (keys[i] < last_key) | ((keys[i] == last_key) & (i <= last_index));
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(void draw_keys(int64_t, int64_t, int64_t, int64_t, int64_t*, int64_t*);
                     void mark_chosen(const int64_t*, int64_t, int64_t, int64_t, int64_t, uint8_t*);)

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Elements of a task.
constexpr int64_t kTaskSize = int64_t{1} << 16;

// Key and position of the last of the `chosen` elements, at least 1.
std::pair<int64_t, int64_t> last_chosen(const int64_t* keys, int64_t count, const std::vector<int64_t>& histograms,
                                        int64_t chosen) {
    int64_t bucket = 0, before = 0;
    for (;; ++bucket) {
        int64_t inside = 0;
        for (size_t task = 0; task < histograms.size(); task += kBuckets) {
            inside += histograms[task + bucket];
        }
        if (before + inside >= chosen) {
            break;
        }
        before += inside;
    }
    std::vector<std::pair<int64_t, int64_t> > candidates;
    for (int64_t i = 0; i < count; ++i) {
        if (bucket_of(keys[i]) == bucket) {
            candidates.emplace_back(keys[i], i);
        }
    }
    const auto last = candidates.begin() + (chosen - before - 1);
    std::nth_element(candidates.begin(), last, candidates.end());
    return *last;
}

Tensor draw_subset(const Tensor& seed, int64_t stream, int64_t count, int64_t chosen) {
    Tensor out = torch::stable::new_empty(seed, {count}, ScalarType::Bool);
    uint8_t* marks = reinterpret_cast<uint8_t*>(out.mutable_data_ptr<bool>());
    if (chosen == 0) {
        std::fill(marks, marks + count, uint8_t{0});
        return out;
    }
    const int64_t number = seed.const_data_ptr<int64_t>()[0];
    const std::unique_ptr<int64_t[]> keys(new int64_t[count]);
    std::vector<int64_t> histograms((count + kTaskSize - 1) / kTaskSize * kBuckets);
    const auto draw = SEEGERA_CHOOSE(draw_keys);
    for_each_range(count, kTaskSize, [&](int64_t begin, int64_t end) {
        draw(number, stream, begin, end, keys.get(), histograms.data() + begin / kTaskSize * kBuckets);
    });
    const auto [last_key, last_index] = last_chosen(keys.get(), count, histograms, chosen);
    const auto mark = SEEGERA_CHOOSE(mark_chosen);
    const int64_t key = last_key, index = last_index;
    for_each_range(count, kTaskSize,
                   [&](int64_t begin, int64_t end) { mark(keys.get(), begin, end, key, index, marks); });
    return out;
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("draw_subset", TORCH_BOX(&seegera::draw_subset)); }

#endif
