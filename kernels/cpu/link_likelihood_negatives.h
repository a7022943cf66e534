// The drawing of non-edges for link_likelihood: pairs by their numbers, then the drawn pairs by rows.
#pragma once

#include <cstdint>

#include "common/isa.h"

namespace seegera {

struct Draws {
    int64_t seed;
    int64_t nodes;
    const int64_t* gaps;  // non-edges before each edge
    int64_t edges;
    int64_t* pairs;  // [draws, 2]
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/philox.h"

namespace seegera {
namespace SEEGERA_ISA {

// Draws at a time.
constexpr int kDrawBatch = 16;

// The pairs of the draws [begin, end). As in seegera_fast/sampling.py: the pairs i < k are numbered in ascending order,
// and non-edge number `rank` is pair rank + m, where m counts the edges before it.
void draw_negatives(const Draws& p, int64_t begin, int64_t end) {
    const PhiloxKey key(p.seed);
    const int64_t pairs = p.nodes * (p.nodes - 1) / 2;
    for (int64_t base = begin; base < end; base += kDrawBatch) {
        const int count = end - base < kDrawBatch ? end - base : kDrawBatch;
        int64_t rank[kDrawBatch], before[kDrawBatch] = {};
        for (int i = 0; i < count; ++i) {
            rank[i] = philox_integer(key, kNegativesStream, base + i, pairs - p.edges);
        }
        // Bisection for the batch side by side, so that its reads of gaps overlap; a branch would be mispredicted half
        // the time.
        for (int64_t length = p.edges, half; length > 0; length -= half) {
            half = (length + 1) / 2;
            for (int i = 0; i < count; ++i) {
                before[i] += half & -static_cast<int64_t>(p.gaps[before[i] + half - 1] <= rank[i]);
            }
        }
        for (int i = 0; i < count; ++i) {
            // Counted from the last pair, the row t above the last one starts at t (t + 1) / 2. The root may be off by
            // a rounding.
            const int64_t from_last = pairs - 1 - (rank[i] + before[i]);
            int64_t t = static_cast<int64_t>((__builtin_sqrt(8.0 * static_cast<double>(from_last) + 1.0) - 1.0) / 2.0);
            while (t * (t + 1) / 2 > from_last) {
                --t;
            }
            while ((t + 1) * (t + 2) / 2 <= from_last) {
                ++t;
            }
            p.pairs[2 * (base + i)] = p.nodes - 2 - t;
            p.pairs[2 * (base + i) + 1] = p.nodes - 1 - (from_last - t * (t + 1) / 2);
        }
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <memory>
#include <vector>

#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(void draw_negatives(const Draws&, int64_t, int64_t);)

constexpr int64_t kTaskDraws = 4096;  // draws of a task

// The drawn pairs by rows, in the order of drawing.
class DrawnPairs {
 public:
    DrawnPairs(Draws draws, int64_t count, bool both)
        : pairs_(new int64_t[2 * count]), rowptr_(draws.nodes + 1), col_(both ? 2 * count : count) {
        draws.pairs = pairs_.get();
        for_each_range(count, kTaskDraws,
                       [&](int64_t begin, int64_t end) { SEEGERA_CHOOSE(draw_negatives)(draws, begin, end); });
        const auto each = [&](const auto& use) {
            for (int64_t m = 0; m < count; ++m) {
                use(pairs_[2 * m], pairs_[2 * m + 1]);
                if (both) {
                    use(pairs_[2 * m + 1], pairs_[2 * m]);
                }
            }
        };
        each([&](int64_t row, int64_t) { ++rowptr_[row + 1]; });
        for (int64_t row = 0; row < draws.nodes; ++row) {
            rowptr_[row + 1] += rowptr_[row];
        }
        std::vector<int64_t> next(rowptr_.begin(), rowptr_.end() - 1);
        each([&](int64_t row, int64_t other) { col_[next[row]++] = other; });
    }
    const int64_t* rowptr() const { return rowptr_.data(); }
    const int64_t* col() const { return col_.data(); }

 private:
    std::unique_ptr<int64_t[]> pairs_;
    std::vector<int64_t> rowptr_;
    std::vector<int64_t> col_;
};

}  // namespace seegera

#endif
