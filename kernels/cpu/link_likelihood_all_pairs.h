// log p(A | Z) over all pairs: the sum of softplus(s) over s = z z^T, in tiles of s that are computed, used and
// discarded. s is symmetric: a pair of row blocks (a, b) is visited once and serves (b, a) too. A link has another
// term, pos_weight softplus(-s): its score is taken out of the tile before the pass over it, and its slope put in after
// the pass, so that nothing cancels.
//
// Floor: 3 n^2 d operations (s, and its slopes times the rows of either side) and n^2 / 2 exponentials. Measured at the
// rate of large products: 1.00 to 1.06 times at d = 512, and 1.2 times at d = 64, where the exponentials take a sixth
// of the time.
//
// Bits: a block takes part in its tasks one after the other, in an order that the problem fixes. Nothing depends on the
// number of threads.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "common/score_tile.h"
#include "link_likelihood.h"

#ifndef SEEGERA_REGISTER

#include "common/math.h"

namespace seegera {
namespace SEEGERA_ISA {

// A score whose softplus and sigmoid are zero.
template <typename T>
constexpr T kLowest = -(sizeof(T) == sizeof(float) ? static_cast<T>(__FLT_MAX__) : static_cast<T>(__DBL_MAX__));

template <typename T>
inline T& at_cell(const ScoreTile<T>& tile, uint32_t cell) {
    return tile.scores[(cell >> kCellBits) * tile.stride + (cell & ((1u << kCellBits) - 1))];
}

// The sum of weight * softplus(-s) over the cells, whose slopes go to `slopes`. The tile keeps kLowest there.
template <typename T>
double take_links(const ScoreTile<T>& tile, const uint32_t* cells, int64_t count, double weight, T* slopes) {
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
        store_part(slopes + c, weighted(splat<V>(static_cast<T>(-weight)), slope), count - c);
    }
    return weighted(weight, total);
}

template <typename T>
void put_links(const ScoreTile<T>& tile, const uint32_t* cells, int64_t count, const T* slopes) {
    for (int64_t c = 0; c < count; ++c) {
        at_cell(tile, cells[c]) = slopes[c];
    }
}

// The sum of softplus(s) over the tile. With `slopes`, sigmoid(s) overwrites s.
template <typename T>
double dense_terms(const ScoreTile<T>& tile, bool slopes) {
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

#define SEEGERA_INSTANTIATE(T)                                                             \
    template double take_links(const ScoreTile<T>&, const uint32_t*, int64_t, double, T*); \
    template void put_links(const ScoreTile<T>&, const uint32_t*, int64_t, const T*);      \
    template double dense_terms(const ScoreTile<T>&, bool);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/parallel.h"
#include "common/product.h"
#include "common/tiles.h"
#include "link_likelihood_meetings.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> double take_links(const ScoreTile<T>&, const uint32_t*, int64_t, double, T*);
                     template <typename T> void put_links(const ScoreTile<T>&, const uint32_t*, int64_t, const T*);
                     template <typename T> double dense_terms(const ScoreTile<T>&, bool);)

// The links of any two blocks, as cells of their tile.
class LinkCells {
 public:
    LinkCells(const Blocks& blocks, const int64_t* rowptr, const int64_t* col)
        : blocks_(blocks.count()), starts_(blocks_ * (blocks_ + 1)), cells_(new uint32_t[rowptr[blocks.total()]]) {
        std::vector<int32_t> block_of(blocks.total() / kUnit + 1);
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
                        // A pair of blocks is visited from the lower one; a diagonal entry is no link.
                        if (col[e] >= begin && col[e] != row) {
                            use(row, col[e], block_of[col[e] / kUnit]);
                        }
                    }
                }
            };
            // The cells of this block are stored at the indices that its links have in col.
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
class LinkTileWorker {
 public:
    LinkTileWorker(const Links<T>& links, const Blocks& blocks, const LinkCells& cells, int64_t most_links)
        : p_(links),
          blocks_(blocks),
          cells_(cells),
          stride_(blocks.largest()),
          memory_(stride_ * stride_ + most_links + stride_),
          scores_(memory_.get()),
          slopes_(scores_ + stride_ * stride_),
          diagonal_(stride_) {
        for (int64_t i = 0; i < stride_; ++i) {
            diagonal_[i] = static_cast<uint32_t>(i << kCellBits | i);
        }
    }

    // The terms of two blocks. Their part of the gradient is written in the first round and added in the others.
    double run(const Meeting& m) {
        const bool itself = m.lower == m.upper;
        const int64_t rows = blocks_.size(m.lower), columns = blocks_.size(m.upper);
        const Matrix<const T> z_rows = z(m, m.lower), z_columns = z(m, m.upper);
        const Matrix<T> scores{scores_, rows, columns, stride_, 1};
        multiply<T>(scores, z_rows, z_columns.flipped());

        const ScoreTile<T> tile{scores_, stride_, rows, columns};
        const uint32_t* links = cells_.of(m.lower, m.upper);
        const int64_t count = cells_.count(m.lower, m.upper);
        double total = SEEGERA_CHOOSE(take_links<T>)(tile, links, count, p_.link_weight, slopes_);
        if (itself) {
            total += SEEGERA_CHOOSE(take_links<T>)(tile, diagonal_.data(), rows, p_.self_weight, slopes_ + count);
        }
        total += SEEGERA_CHOOSE(dense_terms<T>)(tile, p_.gradient != nullptr);
        if (p_.gradient != nullptr) {
            SEEGERA_CHOOSE(put_links<T>)(tile, links, count, slopes_);
            if (itself) {
                SEEGERA_CHOOSE(put_links<T>)(tile, diagonal_.data(), rows, slopes_ + count);
            }
            add_product(m, m.lower, as_const(scores), z_columns);
            if (!itself) {
                add_product(m, m.upper, as_const(scores).flipped(), z_rows);
            }
        }
        return itself ? -total : -2 * total;
    }

 private:
    Matrix<const T> z(const Meeting& m, int64_t block) const {
        return {p_.z + blocks_.begin(block) * p_.row_stride + m.sample * p_.sample_stride, blocks_.size(block),
                p_.width, p_.row_stride, 1};
    }

    // A pair is in the sum in both directions, hence the 2.
    void add_product(const Meeting& m, int64_t block, const Matrix<const T>& slopes, const Matrix<const T>& others) {
        T* target = p_.gradient + (m.sample * p_.nodes + blocks_.begin(block)) * p_.width;
        multiply<T>(contiguous_matrix(target, blocks_.size(block), p_.width), slopes, others, m.round == 0 ? 0 : 1, -2);
    }

    const Links<T>& p_;
    const Blocks& blocks_;
    const LinkCells& cells_;
    int64_t stride_;
    Scratch<T> memory_;
    T* scores_;
    T* slopes_;
    std::vector<uint32_t> diagonal_;
};

template <typename T>
void all_pairs(const Links<T>& p, double* values) {
    const BlockGroups groups = group_blocks(p.nodes);
    const Blocks blocks(p.nodes, groups.count * groups.size);
    const LinkCells cells(blocks, p.rowptr, p.col);
    const int64_t most_links = cells.largest_count();
    const std::vector<Meeting> meetings = schedule_meetings(groups, p.samples, num_threads());
    // One for each block of each sample. A block is in one task at a time, so no two tasks add to the same one.
    std::vector<double> totals(p.samples * blocks.count());
    Turns turns(static_cast<int64_t>(totals.size()));
    on_every_thread([&](const auto& next) {
        try {
            LinkTileWorker<T> worker(p, blocks, cells, most_links);
            // Meetings are taken in order, so that those which one waits for are done or running.
            for (int64_t i = next(); i < static_cast<int64_t>(meetings.size()); i = next()) {
                const Meeting& m = meetings[i];
                const int64_t lower = m.sample * blocks.count() + m.lower, upper = m.sample * blocks.count() + m.upper;
                if (!turns.wait(lower, m.round) || !turns.wait(upper, m.round)) {
                    return;
                }
                totals[lower] += worker.run(m);
                turns.end(lower);
                if (upper != lower) {
                    turns.end(upper);
                }
            }
        } catch (...) {
            turns.fail();
            throw;
        }
    });
    for (size_t i = 0; i < totals.size(); ++i) {
        values[i / blocks.count()] += totals[i];
    }
}

}  // namespace seegera

#endif
