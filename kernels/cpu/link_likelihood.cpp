// log p(A | Z) under p_ik = sigmoid(z_i . z_k) with its gradient for an upstream of one: value [J] and gradient [J, n,
// d] of z [n, J, d], float32 or float64.
//
// All pairs: the sum of softplus(s) over s = z z^T, in tiles of s that are made, used and forgotten. s is symmetric: a
// pair of row blocks (a, b) is visited once and serves (b, a) too. A link has another term, pos_weight softplus(-s):
// its score is taken out of the tile before the pass over it, and its slope put in after the pass, so that nothing
// cancels. Sampled negatives: for each row batches of other rows, first multiplied with it, then added to its gradient.
//
// Floor of all pairs: 3 n^2 d operations (s, and its slopes times the rows of either side) and n^2 / 2 exponentials.
// Measured at the rate of large products: 1.00 to 1.06 times at d = 512, and 1.2 times at d = 64, where the
// exponentials take a sixth of the time. Floor of a sample: 2 (links + negatives) rows of z read, 4 d operations on
// each.
//
// Bits: a block takes part in its tasks one after the other, in an order that the problem fixes; so do the batches of a
// row. Nothing depends on the number of threads.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

template <typename T>
struct Links {
    const T* z;
    int64_t nodes;
    int64_t samples;
    int64_t width;
    int64_t row_stride;
    int64_t sample_stride;
    const int64_t* rowptr;
    const int64_t* col;
    double link_weight;
    double self_weight;
    T* gradient;  // [samples, nodes, width]; null where it is not wanted
};

// The scores of two blocks. A row has room up to a whole number of vectors.
template <typename T>
struct Tile {
    T* scores;
    int64_t stride;
    int64_t rows;
    int64_t columns;
};

// A cell of a tile: its row and its column in the halves of 32 bits.
constexpr int kCellBits = 16;

// Drawn pairs by rows: both directions, or without a gradient only that from the lower node.
struct Negatives {
    const int64_t* rowptr;
    const int64_t* col;
    double weight;
};

template <typename T>
struct Scaling {
    const T* gradient;  // [samples, nodes, width]
    const T* upstream;  // [samples]
    int64_t nodes;
    int64_t samples;
    int64_t width;
    T* out;  // [nodes, samples, width]
};

struct Draws {
    int64_t seed;
    int64_t nodes;
    const int64_t* gaps;  // non-edges before each edge
    int64_t edges;
    int64_t* pairs;  // [draws, 2]
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/math.h"
#include "common/philox.h"

namespace seegera {
namespace SEEGERA_ISA {

// --- All pairs -------------------------------------------------------------------------------------------------------

// A score whose softplus and sigmoid are zero.
template <typename T>
constexpr T kLowest = -(sizeof(T) == sizeof(float) ? static_cast<T>(__FLT_MAX__) : static_cast<T>(__DBL_MAX__));

template <typename T>
inline T& at_cell(const Tile<T>& tile, uint32_t cell) {
    return tile.scores[(cell >> kCellBits) * tile.stride + (cell & ((1u << kCellBits) - 1))];
}

// The sum of weight * softplus(-s) over the cells, whose slopes go to `slopes`. The tile keeps kLowest there.
template <typename T>
double take_links(const Tile<T>& tile, const uint32_t* cells, int64_t count, double weight, T* slopes) {
    using V = Vector<T, kVectorBytes>;
    for (int64_t c = 0; c < count; ++c) {
        T& score = at_cell(tile, cells[c]);
        slopes[c] = -score;
        score = kLowest<T>;
    }
    double total = 0;
    for (int64_t c = 0; c < count; c += kLanes<V>) {
        V negated = load_part<V>(slopes + c, count - c);
        if (count - c < kLanes<V>) {
            V rest = splat<V>(kLowest<T>);
            __builtin_memcpy(&rest, &negated, (count - c) * sizeof(T));
            negated = rest;
        }
        V value, slope;
        softplus_sigmoid(negated, value, slope);
        total += horizontal_sum_double(value);
        store_part(slopes + c, slope * static_cast<T>(-weight), count - c);
    }
    return weight * total;
}

template <typename T>
void put_links(const Tile<T>& tile, const uint32_t* cells, int64_t count, const T* slopes) {
    for (int64_t c = 0; c < count; ++c) {
        at_cell(tile, cells[c]) = slopes[c];
    }
}

// The sum of softplus(s) over the tile. With `slopes`, sigmoid(s) takes the place of s.
template <typename T>
double dense_terms(const Tile<T>& tile, bool slopes) {
    using V = Vector<T, kVectorBytes>;
    double total = 0;
    for (int64_t r = 0; r < tile.rows; ++r) {
        T* row = tile.scores + r * tile.stride;
        for (int64_t c = tile.columns; c % kLanes<V> != 0; ++c) {
            row[c] = kLowest<T>;
        }
        V sum{};
        if (slopes) {
            for (int64_t c = 0; c < tile.columns; c += kLanes<V>) {
                V value, slope;
                softplus_sigmoid(load<V>(row + c), value, slope);
                sum += value;
                store(row + c, slope);
            }
        } else {
            for (int64_t c = 0; c < tile.columns; c += kLanes<V>) {
                sum += softplus(load<V>(row + c));
            }
        }
        total += horizontal_sum_double(sum);
    }
    return total;
}

// --- Sampled negatives -----------------------------------------------------------------------------------------------

// Other rows that a row is multiplied with at a time: a vector of products has its exponentials at once.
constexpr int kBatch = 16;
// Of each row, fetched when it joins a batch: 5 to 10 % at d = 512; the rest of it the machine foresees.
constexpr int64_t kFetchBytes = 512;
constexpr int kLineBytes = 64;

template <typename T>
struct Batch {
    const T* rows[kBatch];
    T signs[kBatch];  // 1 for softplus(s), -1 for a link's softplus(-s)
    T weights[kBatch];
    int count = 0;
};

// own . rows[k] for k in [0, Count).
template <typename T, int Count>
inline void multiply(const T* own, const T* const* rows, int64_t offset, int64_t width, T* products) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    V even[Count] = {}, odd[Count] = {};
    int64_t c = 0;
    for (; c + 2 * lanes <= width; c += 2 * lanes) {
        const V first = load<V>(own + c), second = load<V>(own + c + lanes);
        for (int k = 0; k < Count; ++k) {
            even[k] += first * load<V>(rows[k] + offset + c);
            odd[k] += second * load<V>(rows[k] + offset + c + lanes);
        }
    }
    for (; c < width; c += lanes) {
        const V first = load_part<V>(own + c, width - c);
        for (int k = 0; k < Count; ++k) {
            even[k] += first * load_part<V>(rows[k] + offset + c, width - c);
        }
    }
    for (int k = 0; k < Count; ++k) {
        products[k] = horizontal_sum(even[k] + odd[k]);
    }
}

// target[c] (+)= sum_k factors[k] rows[k][c] over Count vectors of columns, of which the last one may be cut short.
template <typename T, int Count>
inline void combine(const Batch<T>& batch, int64_t offset, const T* factors, bool add, int64_t left, T* target) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kLanes<V>;
    V sum[Count] = {};
    if (add) {
        for (int v = 0; v < Count; ++v) {
            sum[v] = load_part<V>(target + v * lanes, left - v * lanes);
        }
    }
    for (int k = 0; k < batch.count; ++k) {
        for (int v = 0; v < Count; ++v) {
            sum[v] += factors[k] * load_part<V>(batch.rows[k] + offset + v * lanes, left - v * lanes);
        }
    }
    for (int v = 0; v < Count; ++v) {
        store_part(target + v * lanes, sum[v], left - v * lanes);
    }
}

// Adds the terms of a row with those of the batch to values[j], and writes (`first`) or adds their part of its
// gradient.
template <typename T>
void use_batch(const Links<T>& p, int64_t row, Batch<T>& batch, bool first, double* values) {
    using V = Vector<T, kVectorBytes>;
    const T* own = p.z + row * p.row_stride;
    int padded = batch.count;
    for (; padded % kLanes<V> != 0; ++padded) {
        batch.signs[padded] = 1;
        batch.weights[padded] = 0;
    }
    for (int64_t j = 0; j < p.samples; ++j) {
        const int64_t offset = j * p.sample_stride;
        T factors[kBatch] = {};
        int k = 0;
        for (; k + 4 <= batch.count; k += 4) {
            multiply<T, 4>(own + offset, batch.rows + k, offset, p.width, factors + k);
        }
        for (; k < batch.count; ++k) {
            multiply<T, 1>(own + offset, batch.rows + k, offset, p.width, factors + k);
        }
        for (k = 0; k < padded; k += kLanes<V>) {
            const V sign = load<V>(batch.signs + k), weight = load<V>(batch.weights + k);
            V value, slope;
            softplus_sigmoid(load<V>(factors + k) * sign, value, slope);
            values[j] -= horizontal_sum_double(value * weight);
            // A pair is in the sum in both directions, hence the 2.
            store(factors + k, slope * weight * sign * -2);
        }
        if (p.gradient != nullptr) {
            constexpr int block = 8;
            T* target = p.gradient + (j * p.nodes + row) * p.width;
            int64_t c = 0;
            for (; c + block * kLanes<V> <= p.width; c += block * kLanes<V>) {
                combine<T, block>(batch, offset + c, factors, !first, block * kLanes<V>, target + c);
            }
            for (; c < p.width; c += kLanes<V>) {
                combine<T, 1>(batch, offset + c, factors, !first, p.width - c, target + c);
            }
        }
    }
}

// Adds the terms of the rows [row_begin, row_end) to values[j]. Without a gradient a pair is used in the row of its
// lower node, with twice the weight.
template <typename T>
void sampled_rows(const Links<T>& p, const Negatives& negatives, int64_t row_begin, int64_t row_end, double* values) {
    const double directions = p.gradient == nullptr ? 2 : 1;
    const int64_t fetched = p.row_stride * int64_t{sizeof(T)} < kFetchBytes ? p.row_stride * sizeof(T) : kFetchBytes;
    Batch<T> batch;
    for (int64_t row = row_begin; row < row_end; ++row) {
        bool first = true;
        const auto flush = [&] {
            use_batch(p, row, batch, first, values);
            batch.count = 0;
            first = false;
        };
        const auto add = [&](int64_t other, int sign, double weight) {
            if (batch.count == kBatch) {
                flush();
            }
            const T* source = p.z + other * p.row_stride;
            for (int64_t byte = 0; byte < fetched; byte += kLineBytes) {
                __builtin_prefetch(source + byte / sizeof(T));
            }
            batch.rows[batch.count] = source;
            batch.signs[batch.count] = sign;
            batch.weights[batch.count] = static_cast<T>(weight);
            ++batch.count;
        };
        // Of weight 0 where self-loops do not count: then every row has a batch that writes its gradient.
        add(row, -1, p.self_weight);
        for (int64_t e = p.rowptr[row]; e < p.rowptr[row + 1]; ++e) {
            if (p.gradient != nullptr || p.col[e] > row) {
                add(p.col[e], -1, directions * p.link_weight);
            }
        }
        for (int64_t e = negatives.rowptr[row]; e < negatives.rowptr[row + 1]; ++e) {
            add(negatives.col[e], 1, directions * negatives.weight);
        }
        flush();
    }
}

// The pairs of the draws [begin, end). As in seegera_fast/sampling.py: the pairs i < k are numbered in ascending order,
// and non-edge number `rank` is pair rank + m, where m counts the edges before it.
void draw_negatives(const Draws& p, int64_t begin, int64_t end) {
    const PhiloxKey key(p.seed);
    const int64_t pairs = p.nodes * (p.nodes - 1) / 2;
    for (int64_t base = begin; base < end; base += kBatch) {
        const int count = end - base < kBatch ? end - base : kBatch;
        int64_t rank[kBatch], before[kBatch] = {};
        for (int i = 0; i < count; ++i) {
            rank[i] = philox_integer(key, kNegativesStream, base + i, pairs - p.edges);
        }
        // Bisection for the batch side by side, so that its reads of gaps overlap; a branch would be a coin toss.
        for (int64_t length = p.edges, half; length > 0; length -= half) {
            half = (length + 1) / 2;
            for (int i = 0; i < count; ++i) {
                before[i] += half & -static_cast<int64_t>(p.gaps[before[i] + half - 1] <= rank[i]);
            }
        }
        for (int i = 0; i < count; ++i) {
            // Counted from the last pair, the row t above the last one starts at t (t + 1) / 2. The root may be off by
            // a rounding.
            const int64_t place = pairs - 1 - (rank[i] + before[i]);
            int64_t t = static_cast<int64_t>((__builtin_sqrt(8.0 * static_cast<double>(place) + 1.0) - 1.0) / 2.0);
            while (t * (t + 1) / 2 > place) {
                --t;
            }
            while ((t + 1) * (t + 2) / 2 <= place) {
                ++t;
            }
            p.pairs[2 * (base + i)] = p.nodes - 2 - t;
            p.pairs[2 * (base + i) + 1] = p.nodes - 1 - (place - t * (t + 1) / 2);
        }
    }
}

// --- Backward --------------------------------------------------------------------------------------------------------

// out = upstream[j] * gradient in the rows [row_begin, row_end).
template <typename T>
void scale_rows(const Scaling<T>& p, int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t j = 0; j < p.samples; ++j) {
            const T* source = p.gradient + (j * p.nodes + row) * p.width;
            T* target = p.out + (row * p.samples + j) * p.width;
            const T factor = p.upstream[j];
#pragma omp simd
            for (int64_t c = 0; c < p.width; ++c) {
                target[c] = factor * source[c];
            }
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                                                                \
    template double take_links(const Tile<T>&, const uint32_t*, int64_t, double, T*);         \
    template void put_links(const Tile<T>&, const uint32_t*, int64_t, const T*);              \
    template double dense_terms(const Tile<T>&, bool);                                        \
    template void sampled_rows(const Links<T>&, const Negatives&, int64_t, int64_t, double*); \
    template void scale_rows(const Scaling<T>&, int64_t, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/product.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> double take_links(const Tile<T>&, const uint32_t*, int64_t, double, T*);
                     template <typename T> void put_links(const Tile<T>&, const uint32_t*, int64_t, const T*);
                     template <typename T> double dense_terms(const Tile<T>&, bool); template <typename T>
                     void sampled_rows(const Links<T>&, const Negatives&, int64_t, int64_t, double*);
                     template <typename T> void scale_rows(const Scaling<T>&, int64_t, int64_t);
                     void draw_negatives(const Draws&, int64_t, int64_t);)

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Block boundaries are multiples of this: whole vectors and whole cache lines.
constexpr int64_t kUnit = 16;
// Rows of a block, at most: a tile of 256 kB in float32. At d = 512, 192 rows took 1.06 times as long and 128 rows 1.1
// times; at d = 64 all sizes from 160 to 384 were alike.
constexpr int64_t kBlockRows = 256;
// Blocks of a group, at most: at n = 13,752, 4 took 1 to 3 % less time than 1, and no more than 8.
constexpr int64_t kGroupBlocks = 4;
// Multiply-adds of a task, and draws of one.
constexpr int64_t kTaskCost = int64_t{1} << 18;
constexpr int64_t kTaskDraws = 4096;

// --- All pairs -------------------------------------------------------------------------------------------------------

// Row blocks of about equal size, in groups of equally many.
class Blocks {
 public:
    explicit Blocks(int64_t rows) : rows_(rows), units_((rows + kUnit - 1) / kUnit) {
        const int64_t least = (rows + kBlockRows - 1) / kBlockRows;
        groups_ = (least + kGroupBlocks - 1) / kGroupBlocks;
        group_size_ = (least + groups_ - 1) / groups_;
    }
    int64_t rows() const { return rows_; }
    int64_t groups() const { return groups_; }
    int64_t group_size() const { return group_size_; }
    int64_t count() const { return groups_ * group_size_; }
    int64_t begin(int64_t block) const { return std::min(rows_, block * units_ / count() * kUnit); }
    int64_t size(int64_t block) const { return begin(block + 1) - begin(block); }
    // A multiple of kUnit that no block exceeds.
    int64_t largest() const { return (units_ + count() - 1) / count() * kUnit; }

 private:
    int64_t rows_;
    int64_t units_;
    int64_t groups_;
    int64_t group_size_;
};

// Two blocks, lower <= upper, that meet in a sample. It is task number `round` of both.
struct Meeting {
    int64_t sample;
    int64_t lower;
    int64_t upper;
    int64_t round;
};

// All meetings, each behind those of its blocks in earlier rounds. Groups meet in a round-robin tournament, i and k in
// the round i + k modulo their number, and so do the blocks of the two groups: each has one task in each round. While
// two groups meet, their rows of z and of the gradient stay in a cache. How many pairs of groups and how many samples
// go side by side depends on the threads to be fed, and changes the order of no block.
std::vector<Meeting> schedule(const Blocks& blocks, int64_t samples, int64_t threads) {
    const int64_t groups = blocks.groups(), size = blocks.group_size();
    // Twice as many independent tasks as threads, so that what a task waits for is usually done. A group that meets
    // itself has about half as many tasks as it has blocks.
    const auto shares = [&](int64_t tasks) { return (2 * threads + tasks - 1) / tasks; };
    const int64_t pairs_at_once = shares((size + 1) / 2);
    const int64_t samples_at_once = std::min(samples, shares((blocks.count() + 1) / 2));
    std::vector<Meeting> meetings;
    meetings.reserve(samples * blocks.count() * (blocks.count() + 1) / 2);
    const auto meet = [&](int64_t sample, int64_t lower, int64_t upper, int64_t group_round, int64_t step) {
        for (int64_t i = 0; i < size; ++i) {
            const int64_t k = (step - i + size) % size;
            if (lower < upper || i <= k) {
                meetings.push_back({sample, lower * size + i, upper * size + k, group_round * size + step});
            }
        }
    };
    for (int64_t sample = 0; sample < samples; sample += samples_at_once) {
        const int64_t sample_end = std::min(samples, sample + samples_at_once);
        for (int64_t group_round = 0; group_round < groups; ++group_round) {
            std::vector<std::pair<int64_t, int64_t> > pairs;
            for (int64_t lower = 0; lower < groups; ++lower) {
                const int64_t upper = (group_round - lower + groups) % groups;
                if (lower <= upper) {
                    pairs.emplace_back(lower, upper);
                }
            }
            for (int64_t pair = 0; pair < static_cast<int64_t>(pairs.size()); pair += pairs_at_once) {
                const int64_t pair_end = std::min<int64_t>(pairs.size(), pair + pairs_at_once);
                for (int64_t step = 0; step < size; ++step) {
                    for (int64_t s = sample; s < sample_end; ++s) {
                        for (int64_t p = pair; p < pair_end; ++p) {
                            meet(s, pairs[p].first, pairs[p].second, group_round, step);
                        }
                    }
                }
            }
        }
    }
    return meetings;
}

// The links of any two blocks, as cells of their tile.
class LinkCells {
 public:
    LinkCells(const Blocks& blocks, const int64_t* rowptr, const int64_t* col)
        : blocks_(blocks.count()), starts_(blocks_ * (blocks_ + 1)), cells_(new uint32_t[rowptr[blocks.rows()]]) {
        std::vector<int32_t> block_of(blocks.rows() / kUnit + 1);
        for (int64_t b = 0; b < blocks_; ++b) {
            for (int64_t row = blocks.begin(b); row < blocks.begin(b + 1); row += kUnit) {
                block_of[row / kUnit] = static_cast<int32_t>(b);
            }
        }
        for_each_task(blocks_, [&](int64_t lower) {
            const int64_t begin = blocks.begin(lower), end = blocks.begin(lower + 1);
            const auto each_link = [&](const auto& use) {
                for (int64_t row = begin; row < end; ++row) {
                    for (int64_t e = rowptr[row]; e < rowptr[row + 1]; ++e) {
                        // Two blocks are looked at from the lower one; a diagonal entry is no link.
                        if (col[e] >= begin && col[e] != row) {
                            use(row, col[e], block_of[col[e] / kUnit]);
                        }
                    }
                }
            };
            // The cells of the rows of this block lie where its links lie in col.
            int64_t* starts = &starts_[lower * (blocks_ + 1)];
            each_link([&](int64_t, int64_t, int64_t upper) { ++starts[upper + 1]; });
            starts[0] = rowptr[begin];
            for (int64_t b = 0; b < blocks_; ++b) {
                starts[b + 1] += starts[b];
            }
            std::vector<int64_t> next(starts, starts + blocks_);
            each_link([&](int64_t row, int64_t column, int64_t upper) {
                const int64_t cell = (row - begin) << kCellBits | (column - blocks.begin(upper));
                cells_[next[upper]++] = static_cast<uint32_t>(cell);
            });
        });
    }
    const uint32_t* of(int64_t lower, int64_t upper) const { return &cells_[starts_[lower * (blocks_ + 1) + upper]]; }
    int64_t count(int64_t lower, int64_t upper) const { return of(lower, upper + 1) - of(lower, upper); }
    int64_t largest_count() const {
        int64_t largest = 0;
        for (int64_t lower = 0; lower < blocks_; ++lower) {
            for (int64_t upper = lower; upper < blocks_; ++upper) {
                largest = std::max(largest, count(lower, upper));
            }
        }
        return largest;
    }

 private:
    int64_t blocks_;
    std::vector<int64_t> starts_;
    std::unique_ptr<uint32_t[]> cells_;
};

// A thread's memory for one tile, and the work on it.
template <typename T>
class TileWorker {
 public:
    TileWorker(const Links<T>& links, const Blocks& blocks, const LinkCells& cells, int64_t most_links)
        : p_(links),
          blocks_(blocks),
          cells_(cells),
          stride_(blocks.largest()),
          memory_(new T[kUnit + stride_ * stride_ + most_links + stride_]),
          diagonal_(stride_) {
        scores_ = memory_.get() + (kUnit - reinterpret_cast<uintptr_t>(memory_.get()) / sizeof(T) % kUnit);
        slopes_ = scores_ + stride_ * stride_;
        for (int64_t i = 0; i < stride_; ++i) {
            diagonal_[i] = static_cast<uint32_t>(i << kCellBits | i);
        }
    }

    // The terms of two blocks. Their part of the gradient is written in the first round and added in the others.
    double run(const Meeting& m) {
        const bool own = m.lower == m.upper;
        const int64_t rows = blocks_.size(m.lower), columns = blocks_.size(m.upper);
        const T* z_rows = z(m, m.lower);
        const T* z_columns = z(m, m.upper);
        const Tensor scores = matrix(scores_, rows, columns, stride_, 1);
        const Tensor left = matrix(z_rows, rows, p_.width, p_.row_stride, 1);
        const Tensor right = matrix(z_columns, p_.width, columns, 1, p_.row_stride);
        multiply(scores, left, right);

        const Tile<T> tile{scores_, stride_, rows, columns};
        const uint32_t* links = cells_.of(m.lower, m.upper);
        const int64_t count = cells_.count(m.lower, m.upper);
        double total = SEEGERA_CHOOSE(take_links<T>)(tile, links, count, p_.link_weight, slopes_);
        if (own) {
            total += SEEGERA_CHOOSE(take_links<T>)(tile, diagonal_.data(), rows, p_.self_weight, slopes_ + count);
        }
        total += SEEGERA_CHOOSE(dense_terms<T>)(tile, p_.gradient != nullptr);
        if (p_.gradient != nullptr) {
            SEEGERA_CHOOSE(put_links<T>)(tile, links, count, slopes_);
            if (own) {
                SEEGERA_CHOOSE(put_links<T>)(tile, diagonal_.data(), rows, slopes_ + count);
            }
            add_product(m, m.lower, scores, z_columns, columns);
            if (!own) {
                add_product(m, m.upper, matrix(scores_, columns, rows, 1, stride_), z_rows, rows);
            }
        }
        return own ? -total : -2 * total;
    }

 private:
    const T* z(const Meeting& m, int64_t block) const {
        return p_.z + blocks_.begin(block) * p_.row_stride + m.sample * p_.sample_stride;
    }

    // A pair is in the sum in both directions, hence the 2.
    void add_product(const Meeting& m, int64_t block, const Tensor& slopes, const T* others, int64_t count) {
        T* target = p_.gradient + (m.sample * p_.nodes + blocks_.begin(block)) * p_.width;
        const Tensor out = matrix(target, blocks_.size(block), p_.width, p_.width, 1);
        const Tensor right = matrix(others, count, p_.width, p_.row_stride, 1);
        multiply_add(out, m.round == 0 ? 0.0 : 1.0, out, -2.0, slopes, right);
    }

    const Links<T>& p_;
    const Blocks& blocks_;
    const LinkCells& cells_;
    int64_t stride_;
    std::unique_ptr<T[]> memory_;
    T* scores_;
    T* slopes_;
    std::vector<uint32_t> diagonal_;
};

template <typename T>
void all_pairs(const Links<T>& p, double* values) {
    const Blocks blocks(p.nodes);
    const LinkCells cells(blocks, p.rowptr, p.col);
    const int64_t most_links = cells.largest_count();
    const std::vector<Meeting> meetings = schedule(blocks, p.samples, torch::stable::get_num_threads());
    // Of each block in each sample. Only the task that a block is in touches them.
    std::vector<double> totals(p.samples * blocks.count());
    const std::unique_ptr<std::atomic<int64_t>[]> finished(new std::atomic<int64_t>[totals.size()]());
    std::atomic<bool> failed{false};
    on_every_thread([&](const auto& next) {
        try {
            TileWorker<T> worker(p, blocks, cells, most_links);
            // Meetings are taken in order, so that what one waits for is done or being done.
            for (int64_t i = next(); i < static_cast<int64_t>(meetings.size()); i = next()) {
                const Meeting& m = meetings[i];
                const int64_t lower = m.sample * blocks.count() + m.lower, upper = m.sample * blocks.count() + m.upper;
                for (const int64_t block : {lower, upper}) {
                    while (finished[block].load(std::memory_order_acquire) < m.round) {
                        if (failed.load()) {
                            return;
                        }
                        std::this_thread::yield();
                    }
                }
                totals[lower] += worker.run(m);
                finished[lower].store(m.round + 1, std::memory_order_release);
                finished[upper].store(m.round + 1, std::memory_order_release);
            }
        } catch (...) {
            failed.store(true);
            throw;
        }
    });
    for (size_t i = 0; i < totals.size(); ++i) {
        values[i / blocks.count()] += totals[i];
    }
}

// --- Sampled negatives -----------------------------------------------------------------------------------------------

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

template <typename T>
void sampled(const Links<T>& p, const Draws& draws, int64_t count, double* values) {
    const DrawnPairs drawn(draws, count, p.gradient != nullptr);
    const int64_t non_edges = p.nodes * (p.nodes - 1) / 2 - draws.edges;
    const Negatives negatives{drawn.rowptr(), drawn.col(), static_cast<double>(non_edges) / static_cast<double>(count)};

    const int64_t limit = kTaskCost / std::max<int64_t>(1, p.samples * p.width);
    const auto cost_before = [&](int64_t row) { return p.rowptr[row] + negatives.rowptr[row] + row; };
    std::vector<int64_t> starts{0};
    for (int64_t row = 1; row <= p.nodes; ++row) {
        if (row == p.nodes || cost_before(row + 1) - cost_before(starts.back()) > limit) {
            starts.push_back(row);
        }
    }
    const int64_t tasks = static_cast<int64_t>(starts.size()) - 1;
    std::vector<double> partial(tasks * p.samples);
    for_each_task(tasks, [&](int64_t task) {
        SEEGERA_CHOOSE(sampled_rows<T>)(p, negatives, starts[task], starts[task + 1], &partial[task * p.samples]);
    });
    for (size_t i = 0; i < partial.size(); ++i) {
        values[i % p.samples] += partial[i];
    }
}

// --- Operators -------------------------------------------------------------------------------------------------------

template <typename T>
std::tuple<Tensor, Tensor> run(const Tensor& z, const Tensor& rowptr, const Tensor& col, const Draws& draws,
                               double pos_weight, bool self_loops, int64_t negatives, bool with_gradient) {
    Links<T> p;
    p.nodes = z.size(0);
    p.samples = z.size(1);
    p.width = z.size(2);
    // A drawn row is gathered for all samples. All pairs take one sample after the other, in blocks of close rows: with
    // the rows of 8 samples between them they took 1.07 times as long at d = 64.
    const bool by_sample = negatives == 0;
    const Tensor ordered = torch::stable::contiguous(by_sample ? torch::stable::transpose(z, 0, 1) : z);
    p.z = ordered.const_data_ptr<T>();
    p.row_stride = by_sample ? p.width : p.samples * p.width;
    p.sample_stride = by_sample ? p.nodes * p.width : p.width;
    p.rowptr = rowptr.const_data_ptr<int64_t>();
    p.col = col.const_data_ptr<int64_t>();
    p.link_weight = pos_weight;
    p.self_weight = self_loops ? pos_weight : 0.0;
    Tensor gradient = torch::stable::new_empty(z, {p.samples, with_gradient ? p.nodes : 0, p.width});
    expect_large(gradient);
    p.gradient = with_gradient ? gradient.mutable_data_ptr<T>() : nullptr;

    std::vector<double> values(p.samples);
    if (negatives > 0) {
        sampled(p, draws, negatives, values.data());
    } else if (p.nodes > 0) {
        all_pairs(p, values.data());
    }
    Tensor value = torch::stable::new_empty(z, {p.samples});
    std::copy(values.begin(), values.end(), value.mutable_data_ptr<T>());
    return {value, gradient};
}

// negatives = 0: all pairs; gaps are not looked at. Without a gradient it has no rows.
std::tuple<Tensor, Tensor> link_likelihood(const Tensor& z, const Tensor& rowptr, const Tensor& col, const Tensor& gaps,
                                           const Tensor& pos_weight, const Tensor& seed, bool self_loops,
                                           int64_t negatives, bool with_gradient) {
    const Draws draws{*seed.const_data_ptr<int64_t>(), z.size(0), gaps.const_data_ptr<int64_t>(), gaps.numel(),
                      nullptr};
    const auto run_typed = z.scalar_type() == ScalarType::Double ? &run<double> : &run<float>;
    return run_typed(z, rowptr, col, draws, *pos_weight.const_data_ptr<double>(), self_loops, negatives, with_gradient);
}

template <typename T>
Tensor scale(const Tensor& gradient, const Tensor& upstream) {
    const Tensor unit = torch::stable::contiguous(gradient), factors = torch::stable::contiguous(upstream);
    const int64_t samples = unit.size(0), nodes = unit.size(1), width = unit.size(2);
    Tensor out = torch::stable::new_empty(gradient, {nodes, samples, width});
    expect_large(out);
    const Scaling<T> p{unit.const_data_ptr<T>(), factors.const_data_ptr<T>(), nodes, samples, width,
                       out.mutable_data_ptr<T>()};
    for_each_range(nodes, kTaskCost / std::max<int64_t>(1, samples * width),
                   [&](int64_t begin, int64_t end) { SEEGERA_CHOOSE(scale_rows<T>)(p, begin, end); });
    return out;
}

Tensor link_likelihood_backward(const Tensor& gradient, const Tensor& upstream) {
    const auto scale_typed = gradient.scalar_type() == ScalarType::Double ? &scale<double> : &scale<float>;
    return scale_typed(gradient, upstream);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("link_likelihood", TORCH_BOX(&seegera::link_likelihood));
    m.impl("link_likelihood_backward", TORCH_BOX(&seegera::link_likelihood_backward));
}

#endif
