// The best pairs of a node, or of the graph, for the registration half of top_links.cpp.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "common/parallel.h"
#include "common/product.h"
#include "top_links.h"

namespace seegera {

// How far an approximate score, an element of a product by BLAS, may be from the score of the pair.
//
// A sum of d products in any order is off by at most d u / (1 - d u) times the sum of their magnitudes, which is at
// most the product of the two rows' norms; u is half a unit in the last place. Where torch may round the operands of
// products to bfloat16, each is off by 2^-8 at most. What is lost to underflow is covered by adding a tiny number to
// each norm.
template <typename T>
class ScoreErrors {
 public:
    // The products are those of tiles of at most `tile_rows` times `tile_columns`.
    ScoreErrors(const EmbeddingRows<T>& rows, int64_t tile_rows, int64_t tile_columns)
        : norms_(new double[rows.nodes]) {
        constexpr bool single = sizeof(T) == sizeof(float);
        constexpr double unit = single ? 0x1p-24 : 0x1p-53, tiny = single ? 0x1p-50 : 0x1p-400;
        // The 8 covers that the score and its bounds are rounded. In float64 the score has an error like the product's.
        const double steps = static_cast<double>(rows.width + 8) * (single ? 1 : 2) * unit;
        relative_ = steps < 0.5 ? steps / (1 - steps) : std::numeric_limits<double>::infinity();
        if (single && products_are_rounded(tile_rows, rows.width, tile_columns)) {
            relative_ += 0x1p-7 + 0x1p-16;
        }
        const auto score = SEEGERA_CHOOSE(score_of<T>);
        for_each_range(
            rows.nodes, (int64_t{1} << 16) / std::max<int64_t>(1, rows.width), [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                    const T* row = rows.row(i);
                    const double square = score(row, row, rows.width);
                    const bool zero =
                        square == 0 && std::all_of(row, row + rows.width, [](T value) { return value == 0; });
                    norms_[i] = zero ? 0 : std::sqrt(square) * (1 + steps) + tiny;
                }
            });
    }

    // An upper bound of the norm of a row: 0 where all of it is 0, NaN where a number is NaN, infinite where the square
    // of the norm is.
    double norm(int64_t i) const { return norms_[i]; }
    // The largest norm of some rows, without those with a NaN.
    double largest(int64_t begin, int64_t end) const {
        double most = 0;
        for (int64_t i = begin; i < end; ++i) {
            most = norms_[i] > most ? norms_[i] : most;
        }
        return most;
    }
    // Infinite where a partial sum may overflow.
    double of(double norm, double other) const {
        constexpr double most = std::numeric_limits<T>::max() / 4;
        const double product = norm * other;
        return product < most ? relative_ * product : std::numeric_limits<double>::infinity();
    }

 private:
    // Whether torch's products of float32 matrices round their operands, as torch.set_float32_matmul_precision and
    // settings of the BLAS library allow. A product of the tiles' shape is tried, since nothing else tells.
    static bool products_are_rounded(int64_t rows, int64_t width, int64_t columns) {
        if (width == 0) {
            return false;
        }
        const Scratch<T> memory(rows * width + columns * width + rows * columns);
        T *left = memory.get(), *right = left + rows * width, *out = right + columns * width;
        for (int64_t i = 0; i < rows * width; ++i) {
            left[i] = 1 + std::numeric_limits<T>::epsilon() * static_cast<T>(2 * (i % 997) + 1);
        }
        std::fill_n(right, columns * width, T(0));
        for (int64_t c = 0; c < columns; ++c) {
            right[c * width + c % width] = 1;
        }
        multiply<T>(contiguous_matrix(out, rows, columns), contiguous_matrix<const T>(left, rows, width),
                    {right, width, columns, 1, width});
        for (int64_t i = 0; i < rows * columns; ++i) {
            if (out[i] != left[i / columns * width + i % columns % width]) {
                return true;
            }
        }
        return false;
    }

    std::unique_ptr<double[]> norms_;
    double relative_;
};

// The best k pairs of those that were added. They are the same in whatever order and by whatever threads they are
// added: pairs stay while they may be among the k best by their bounds, and in the end their scores are computed.
// The score of the k-th best pair is at least threshold(), which any thread may read; one at a time adds.
template <typename T>
class BestPairs {
 public:
    // `memory` has places for room_for(k, pairs) candidates; at most `pairs` will be added.
    static int64_t room_for(int64_t k, int64_t pairs) { return pairs < 2 * k + 8 ? pairs + 1 : 2 * k + 8; }
    void begin(Candidate<T>* memory, int64_t k, int64_t room) { candidates_ = memory, k_ = k, room_ = room; }

    T threshold() const { return threshold_.load(std::memory_order_relaxed); }

    void add(const EmbeddingRows<T>& rows, const Candidate<T>& candidate) {
        if (candidate.high < threshold()) {
            return;
        }
        candidates_[count_++] = candidate;
        if (count_ == room_) {
            drop();
            if (count_ > (k_ + room_) / 2) {
                settle(rows);
            }
        }
    }

    // Brings the threshold up to date.
    void tighten() {
        if (count_ >= k_) {
            drop();
        }
    }

    // The best pairs in order; returns their number, at most k.
    int64_t finish(const EmbeddingRows<T>& rows) {
        tighten();
        settle(rows);
        std::sort(candidates_, candidates_ + count_, Better());
        return count_;
    }
    const Candidate<T>& operator[](int64_t at) const { return candidates_[at]; }

 private:
    struct Better {
        bool operator()(const Candidate<T>& a, const Candidate<T>& b) const {
            return a.low > b.low || (a.low == b.low && a.pair < b.pair);
        }
    };
    // The k-th largest lower bound is a threshold; what is below it goes.
    void drop() {
        std::nth_element(candidates_, candidates_ + (k_ - 1), candidates_ + count_, Better());
        const T threshold = candidates_[k_ - 1].low;
        threshold_.store(threshold, std::memory_order_relaxed);
        count_ = std::remove_if(candidates_ + k_, candidates_ + count_,
                                [&](const Candidate<T>& candidate) { return candidate.high < threshold; }) -
                 candidates_;
    }
    // Computes all scores, and keeps the k best.
    void settle(const EmbeddingRows<T>& rows) {
        SEEGERA_CHOOSE(compute_scores<T>)(rows, candidates_, count_);
        if (count_ >= k_) {
            std::nth_element(candidates_, candidates_ + (k_ - 1), candidates_ + count_, Better());
            count_ = k_;
            threshold_.store(candidates_[k_ - 1].low, std::memory_order_relaxed);
        }
    }

    Candidate<T>* candidates_ = nullptr;
    int64_t k_ = 0;
    int64_t room_ = 0;
    int64_t count_ = 0;
    std::atomic<T> threshold_{-std::numeric_limits<T>::infinity()};
};

}  // namespace seegera
