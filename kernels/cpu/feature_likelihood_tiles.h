// log p(X | H W) by tiles of the outputs O = H W: a tile is made, turned into its slopes G = dlog p/dO while it is hot,
// and used up: gradient of H += G W^T, gradient of W += G^T H.
//
// Floor: 6 n l h operations (2 n l h without gradients; twice that for gaussian) and n l exponentials per sample.
//
// Bits: a block of rows owns its part of H's gradient, a block of columns its part of W's. The tiles of a block add to
// it in one order, which is fixed, and each product runs on one thread.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "feature_likelihood.h"

namespace seegera {

template <typename T>
struct FeatureTile {
    int64_t likelihood;
    int64_t rows;
    int64_t columns;
    int64_t stride;  // columns, up to a multiple of a vector
    T* outputs;      // in: o; out: the slope of log p in o
    T* log_vars;     // gaussian: in: log variance; out: the slope of log p in it
    bool with_slopes;
    const int64_t* rowptr;  // of the tile's first row
    const int64_t* col;
    const T* values;
    int64_t first_column;
    T* target;  // room for a row of X, zeros before and after
    T pos_weight;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/math.h"

namespace seegera {
namespace SEEGERA_ISA {

// Each likelihood: the number that fills up a row of outputs to whole vectors, whose term is zero where x is; the terms
// of a vector of entries, up to a factor and a constant; and what takes the place of the outputs.
template <typename T>
struct BernoulliTerms {
    typedef Vector<T, kVectorBytes> V;
    static constexpr T kFill =
        -(sizeof(T) == sizeof(float) ? static_cast<T>(__FLT_MAX__) : static_cast<T>(__DBL_MAX__));
    static constexpr double kFactor = -1;
    T pos_weight;

    // pos_weight x softplus(-o) + (1 - x) softplus(o), from one exponential: softplus(o) = max(o, 0) + softplus(-|o|).
    V operator()(V x, V& output, V&) const {
        V rest, smaller;
        softplus_sigmoid(negative_magnitude(output), rest, smaller);
        const V ones = x * pos_weight, zeros = 1 - x;
        const V above = at_least(output, T(0)), below = above - output;
        const Mask<V> negative = less(output, V{});
        const V larger = 1 - smaller;
        const V slope = ones * select(negative, larger, smaller) - zeros * select(negative, smaller, larger);
        const V terms = ones * (below + rest) + zeros * (above + rest);
        output = slope;
        return terms;
    }
};

template <typename T>
struct MseTerms {
    typedef Vector<T, kVectorBytes> V;
    static constexpr T kFill = 0;
    static constexpr double kFactor = -1;

    V operator()(V x, V& output, V&) const {
        const V residual = x - output;
        output = residual + residual;
        return residual * residual;
    }
};

template <typename T>
struct GaussianTerms {
    typedef Vector<T, kVectorBytes> V;
    static constexpr T kFill = 0;
    static constexpr double kFactor = -0.5;

    V operator()(V x, V& output, V& log_var) const {
        const V deviation = inverse_deviation(log_var);
        const V difference = (x - output) * deviation;
        const V square = difference * difference;
        const V terms = square + log_var;
        output = difference * deviation;
        log_var = (select(at_least_deviation(log_var), V{}, square) - 1) * T(0.5);
        return terms;
    }
};

template <typename T, bool WithLogVar, typename Terms>
double sum_terms(const FeatureTile<T>& tile, const Terms& terms) {
    typedef Vector<T, kVectorBytes> V;
    constexpr int64_t lanes = kLanes<V>;
    double total = 0;
    for (int64_t row = 0; row < tile.rows; ++row) {
        // The row's entries from the tile's first column on, by bisection.
        int64_t begin = tile.rowptr[row];
        for (int64_t end = tile.rowptr[row + 1]; begin < end;) {
            const int64_t middle = begin + (end - begin) / 2;
            if (tile.col[middle] < tile.first_column) {
                begin = middle + 1;
            } else {
                end = middle;
            }
        }
        int64_t last = begin;
        for (; last < tile.rowptr[row + 1] && tile.col[last] < tile.first_column + tile.columns; ++last) {
            tile.target[tile.col[last] - tile.first_column] = tile.values[last];
        }
        T* outputs = tile.outputs + row * tile.stride;
        T* log_vars = WithLogVar ? tile.log_vars + row * tile.stride : nullptr;
        for (int64_t c = tile.columns; c % lanes != 0; ++c) {
            outputs[c] = Terms::kFill;
            if (WithLogVar) {
                log_vars[c] = 0;
            }
        }
        V sum{};
        for (int64_t c = 0; c < tile.columns; c += lanes) {
            V output = load<V>(outputs + c), log_var{};
            if (WithLogVar) {
                log_var = load<V>(log_vars + c);
            }
            sum += terms(load<V>(tile.target + c), output, log_var);
            if (tile.with_slopes) {
                store(outputs + c, output);
                if (WithLogVar) {
                    store(log_vars + c, log_var);
                }
            }
        }
        total += horizontal_sum_double(sum);
        for (int64_t k = begin; k < last; ++k) {
            tile.target[tile.col[k] - tile.first_column] = 0;
        }
    }
    return Terms::kFactor * total;
}

// The sum of log p over a tile, without the constants; slopes take the place of the outputs where they are wanted.
template <typename T>
double score_tile(const FeatureTile<T>& tile) {
    switch (tile.likelihood) {
        case kMse:
            return sum_terms<T, false>(tile, MseTerms<T>{});
        case kGaussian:
            return sum_terms<T, true>(tile, GaussianTerms<T>{});
        default:
            return sum_terms<T, false>(tile, BernoulliTerms<T>{tile.pos_weight});
    }
}

// out = the sum of `count` parts of which each begins `part_stride` after the one before; out may be the first part.
template <typename T>
void sum_parts(const T* parts, int64_t part_stride, int64_t count, int64_t begin, int64_t end, T* out) {
    for (int64_t part = 1; part < count; ++part) {
        const T* sum = part == 1 ? parts : out;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
            out[i] = sum[i] + parts[part * part_stride + i];
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                         \
    template double score_tile(const FeatureTile<T>&); \
    template void sum_parts(const T*, int64_t, int64_t, int64_t, int64_t, T*);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <algorithm>
#include <memory>
#include <vector>

#include "common/parallel.h"
#include "common/product.h"
#include "common/tiles.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> double score_tile(const FeatureTile<T>&);
                     template <typename T> void sum_parts(const T*, int64_t, int64_t, int64_t, int64_t, T*);)

// Rows and columns of a tile: larger ones leave less for threads, and outgrow the second-level cache.
constexpr int64_t kFeatureTileSize = 288;
// Where there are fewer blocks of columns, W's gradient gets several parts, so that more tiles can be in work at once.
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
                for (int64_t place = 0; place < fewer; ++place) {
                    const int64_t other = (round + place) % rounds;
                    const int64_t row = rows.count() == rounds ? other : place;
                    const int64_t column = rows.count() == rounds ? place : other;
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
        const Tensor hidden = hidden_of(task);
        multiply(tile(task, outputs_), hidden, weight_of(task, p_.weight));
        if (p_.likelihood == kGaussian) {
            multiply(tile(task, log_vars_), hidden, weight_of(task, p_.log_var_weight));
        }
        return SEEGERA_CHOOSE(score_tile<T>)(
            {p_.likelihood, rows_.size(task.row_block), columns_.size(task.column_block), stride_, outputs_, log_vars_,
             with_slopes, p_.rowptr + row, p_.col, p_.values, column, target_, p_.pos_weight});
    }

    // Adds to the gradient of H, or writes it in the first turn.
    void add_to_hidden(const FeatureTileTask& task) {
        const Tensor out = matrix(p_.hidden_gradient + p_.line(task.sample, rows_.begin(task.row_block)),
                                  rows_.size(task.row_block), p_.width, p_.line_stride(), 1);
        const double beta = task.row_turn == 0 ? 0 : 1;
        multiply_add(out, beta, out, 1, tile(task, outputs_), transposed(weight_of(task, p_.weight)));
        if (p_.likelihood == kGaussian) {
            multiply_add(out, 1, out, 1, tile(task, log_vars_), transposed(weight_of(task, p_.log_var_weight)));
        }
    }

    // The same for a gradient of W or V.
    void add_to_weight(const FeatureTileTask& task, T* gradient, bool of_log_var) {
        const Tensor out = matrix(gradient + p_.line(task.sample, columns_.begin(task.column_block)),
                                  columns_.size(task.column_block), p_.width, p_.line_stride(), 1);
        const Tensor slopes = transposed(tile(task, of_log_var ? log_vars_ : outputs_));
        multiply_add(out, task.slot_turn == 0 ? 0 : 1, out, 1, slopes, hidden_of(task));
    }

 private:
    static Tensor transposed(const Tensor& tensor) { return torch::stable::transpose(tensor, 0, 1); }
    Tensor tile(const FeatureTileTask& task, T* data) const {
        return matrix(data, rows_.size(task.row_block), columns_.size(task.column_block), stride_, 1);
    }
    Tensor hidden_of(const FeatureTileTask& task) const {
        return matrix(p_.hidden_at(task.sample, rows_.begin(task.row_block)), rows_.size(task.row_block), p_.width,
                      p_.row_stride, 1);
    }
    Tensor weight_of(const FeatureTileTask& task, const FeatureWeight<T>& weight) const {
        return matrix(
            weight.data + task.sample * weight.sample_stride + columns_.begin(task.column_block) * weight.column_stride,
            p_.width, columns_.size(task.column_block), weight.row_stride, weight.column_stride);
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

// The gradient of W or V while it is made: in parts, or where one is enough, in its place.
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
    // Of the given samples' lines, the others being left as they are.
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
            // Tasks are taken in order, so that those which a task waits for are done or in work.
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
