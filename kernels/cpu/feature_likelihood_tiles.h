// log p(X | H W) by tiles of the outputs O = H W: a tile is computed, turned into its slopes G = dlog p/dO while it is
// in the cache, and used for both gradients: that of H += G W^T, that of W += G^T H.
//
// Floor: 6 n l h operations (2 n l h without gradients; twice that for gaussian) and n l exponentials per sample.
//
// Bits: the tiles of a block of rows add to its part of H's gradient in a fixed order, as do those of a block of
// columns to its part of W's, and each product runs on one thread.
#pragma once

#include "feature_likelihood_terms.h"

#ifdef SEEGERA_REGISTER

#include <algorithm>
#include <memory>
#include <vector>

#include "common/parallel.h"
#include "common/product.h"
#include "common/tiles.h"
#include "feature_likelihood.h"

namespace seegera {

// Rows and columns of a tile: larger ones make fewer tasks for the threads and outgrow the second-level cache.
constexpr int64_t kFeatureTileSize = 288;
// Where there are fewer blocks of columns, W's gradient is summed in several parts, so that more tiles can run at once.
constexpr int64_t kFewestSlots = 8;

// A tile, and its turn among those that add to the same rows of H's gradient, and to the same slot of W's.
struct FeatureTileTask {
    int64_t sample;
    int64_t row_block;
    int64_t column_block;
    int64_t slot;
    int64_t row_turn;
    int64_t slot_turn;
};

// All tiles in an order in which neighbours have no rows and no columns in common.
class FeatureTileOrder {
 public:
    FeatureTileOrder(const Blocks& rows, const Blocks& columns, const std::vector<int64_t>& samples) {
        const int64_t fewer = std::min(rows.count(), columns.count());
        const int64_t rounds = fewer == 0 ? 0 : std::max(rows.count(), columns.count());
        parts_ = std::min(rows.count(), (kFewestSlots + columns.count() - 1) / std::max<int64_t>(1, columns.count()));
        for (const int64_t sample : samples) {
            std::vector<int64_t> row_turns(rows.count()), slot_turns(columns.count() * parts_);
            for (int64_t round = 0; round < rounds; ++round) {
                for (int64_t index = 0; index < fewer; ++index) {
                    const int64_t other = (round + index) % rounds;
                    const int64_t row = rows.count() == rounds ? other : index;
                    const int64_t column = rows.count() == rounds ? index : other;
                    const int64_t slot = column * parts_ + row % parts_;
                    tasks_.push_back({sample, row, column, slot, row_turns[row]++, slot_turns[slot]++});
                }
            }
        }
    }
    const std::vector<FeatureTileTask>& tasks() const { return tasks_; }
    // Parts of W's gradient, to be added up at the end.
    int64_t parts() const { return parts_; }

 private:
    std::vector<FeatureTileTask> tasks_;
    int64_t parts_;
};

template <typename T>
class FeatureTileWorker {
 public:
    FeatureTileWorker(const Features<T>& features, const Blocks& rows, const Blocks& columns)
        : p_(features),
          rows_(rows),
          columns_(columns),
          stride_(columns.largest()),
          memory_((features.likelihood == kGaussian ? 2 : 1) * rows.largest() * stride_ + stride_),
          target_(memory_.get()),
          outputs_(target_ + stride_),
          log_vars_(outputs_ + rows.largest() * stride_) {
        std::fill(target_, target_ + stride_, T(0));
    }

    double score(const FeatureTileTask& task, bool with_slopes) {
        const int64_t row = rows_.begin(task.row_block), column = columns_.begin(task.column_block);
        const Matrix<const T> hidden = hidden_of(task);
        multiply<T>(tile(task, outputs_), hidden, weight_of(task, p_.weight));
        if (p_.likelihood == kGaussian) {
            multiply<T>(tile(task, log_vars_), hidden, weight_of(task, p_.log_var_weight));
        }
        return SEEGERA_CHOOSE(score_tile<T>)(
            {p_.likelihood, rows_.size(task.row_block), columns_.size(task.column_block), stride_, outputs_, log_vars_,
             with_slopes, p_.rowptr + row, p_.col, p_.values, column, target_, p_.pos_weight});
    }

    // Adds to the gradient of H, or writes it in the first turn.
    void add_to_hidden(const FeatureTileTask& task) {
        const Matrix<T> out{p_.hidden_gradient + p_.line(task.sample, rows_.begin(task.row_block)),
                            rows_.size(task.row_block), p_.width, p_.line_stride(), 1};
        const double beta = task.row_turn == 0 ? 0 : 1;
        multiply<T>(out, as_const(tile(task, outputs_)), weight_of(task, p_.weight).flipped(), beta);
        if (p_.likelihood == kGaussian) {
            multiply<T>(out, as_const(tile(task, log_vars_)), weight_of(task, p_.log_var_weight).flipped(), 1);
        }
    }

    // The same for a gradient of W or V.
    void add_to_weight(const FeatureTileTask& task, T* gradient, bool of_log_var) {
        const Matrix<T> out{gradient + p_.line(task.sample, columns_.begin(task.column_block)),
                            columns_.size(task.column_block), p_.width, p_.line_stride(), 1};
        const Matrix<const T> slopes = as_const(tile(task, of_log_var ? log_vars_ : outputs_)).flipped();
        multiply<T>(out, slopes, hidden_of(task), task.slot_turn == 0 ? 0 : 1);
    }

 private:
    Matrix<T> tile(const FeatureTileTask& task, T* data) const {
        return {data, rows_.size(task.row_block), columns_.size(task.column_block), stride_, 1};
    }
    Matrix<const T> hidden_of(const FeatureTileTask& task) const {
        return {p_.hidden_at(task.sample, rows_.begin(task.row_block)), rows_.size(task.row_block), p_.width,
                p_.row_stride, 1};
    }
    Matrix<const T> weight_of(const FeatureTileTask& task, const FeatureWeight<T>& weight) const {
        return {
            weight.data + task.sample * weight.sample_stride + columns_.begin(task.column_block) * weight.column_stride,
            p_.width, columns_.size(task.column_block), weight.row_stride, weight.column_stride};
    }

    const Features<T>& p_;
    const Blocks& rows_;
    const Blocks& columns_;
    int64_t stride_;
    Scratch<T> memory_;
    T* target_;
    T* outputs_;
    T* log_vars_;
};

// The gradient of W or V while it is made: in parts, or, where one part is enough, directly in the result.
template <typename T>
class WeightGradient {
 public:
    WeightGradient(const Features<T>& features, T* gradient, int64_t parts)
        : size_(features.columns * features.line_stride()), gradient_(gradient), parts_(parts) {
        if (gradient != nullptr && parts > 1) {
            memory_.reset(new T[size_ * parts]);
        }
    }
    explicit operator bool() const { return gradient_ != nullptr; }
    T* part(int64_t slot) { return memory_ ? memory_.get() + slot % parts_ * size_ : gradient_; }
    // Adds up the parts of the given samples; the gradients of others are left as they are.
    void finish(const Features<T>& p, const std::vector<int64_t>& samples) {
        if (!memory_) {
            return;
        }
        for_each_range(p.columns, kTaskSize / std::max<int64_t>(1, parts_ * p.width), [&](int64_t begin, int64_t end) {
            for (int64_t column = begin; column < end; ++column) {
                for (const int64_t sample : samples) {
                    const int64_t line = p.line(sample, column);
                    SEEGERA_CHOOSE(sum_parts<T>)(memory_.get(), size_, parts_, line, line + p.width, gradient_);
                }
            }
        });
    }

 private:
    int64_t size_;
    T* gradient_;
    int64_t parts_;
    std::unique_ptr<T[]> memory_;
};

// Sets values[j], without constants, and the gradients of the given samples.
template <typename T>
void by_tiles(const Features<T>& p, const std::vector<int64_t>& samples, double* values) {
    const Blocks rows = Blocks::of_at_most(p.rows, kFeatureTileSize);
    const Blocks columns = Blocks::of_at_most(p.columns, kFeatureTileSize);
    const FeatureTileOrder order(rows, columns, samples);
    const int64_t slots = columns.count() * order.parts();
    WeightGradient<T> weight(p, p.weight_gradient, order.parts());
    WeightGradient<T> log_var(p, p.log_var_gradient, order.parts());
    const bool with_slopes = p.hidden_gradient != nullptr || weight || log_var;
    std::vector<double> totals(order.tasks().size());
    Turns row_turns(p.samples * rows.count()), slot_turns(p.samples * slots);
    on_every_thread([&](const auto& next) {
        FeatureTileWorker<T> worker(p, rows, columns);
        try {
            // Tasks are taken in order, so that those which a task waits for are done or running.
            for (size_t i = next(); i < totals.size(); i = next()) {
                const FeatureTileTask& task = order.tasks()[i];
                totals[i] = worker.score(task, with_slopes);
                if (!with_slopes) {
                    continue;
                }
                const int64_t row_turn = task.sample * rows.count() + task.row_block;
                const int64_t slot_turn = task.sample * slots + task.slot;
                if (!row_turns.wait(row_turn, task.row_turn) || !slot_turns.wait(slot_turn, task.slot_turn)) {
                    return;
                }
                if (p.hidden_gradient != nullptr) {
                    worker.add_to_hidden(task);
                }
                row_turns.end(row_turn);
                if (weight) {
                    worker.add_to_weight(task, weight.part(task.slot), false);
                }
                if (log_var) {
                    worker.add_to_weight(task, log_var.part(task.slot), true);
                }
                slot_turns.end(slot_turn);
            }
        } catch (...) {
            row_turns.fail();
            slot_turns.fail();
            throw;
        }
    });
    weight.finish(p, samples);
    log_var.finish(p, samples);
    for (const int64_t sample : samples) {
        values[sample] = 0;
    }
    for (size_t i = 0; i < totals.size(); ++i) {
        values[order.tasks()[i].sample] += totals[i];
    }
}

}  // namespace seegera

#endif
