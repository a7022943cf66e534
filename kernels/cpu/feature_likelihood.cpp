// log p(X | H W) for J samples, and its gradients for an upstream of one: the value [J], and the gradients of hidden
// H [n, J, h], of weight W and of log_var_weight V, the latter two sample by sample and feature by feature,
// [l, J, h]. float32 or float64. The outputs O = H W, n x l, are never there as a whole.
//
// Tiles (bernoulli, gaussian, and mse where that is cheaper): a tile of O is made, turned into its slopes G = dlog p/dO
// while it is hot, and used up: gradient of H += G W^T, gradient of W += G^T H.
// Floor: 6 n l h operations (2 n l h without gradients; twice that for gaussian) and n l exponentials per sample.
//
// Squares (mse): the sum of (O - X)^2 is tr((H^T H)(W W^T)) - 2 <H, X W^T> + <X, X>, its gradients are
// 2 (H (W W^T) - X W^T) and 2 (W^T (H^T H) - X^T H). The sparse product X W^T serves the value and the gradient both.
// Floor: 3 (n + l) h^2 operations (the two Gram matrices are symmetric, which saves half of theirs) and 4 nnz h. What
// cancels, see kMostCancelled, is done by tiles instead.
//
// Bits: a block of rows owns its part of H's gradient, a block of columns its part of W's. The tiles of a block add to
// it in one order, which is fixed, and each product runs on one thread.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

// As numbered by LIKELIHOODS in seegera_fast/ops/feature_likelihood.py.
enum FeatureLikelihood : int64_t { kBernoulli, kMse, kGaussian };

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
        const V residual = x - output;
        const V slope = residual * exp(-log_var);
        const V square = residual * slope;
        const V terms = square + log_var;
        output = slope;
        log_var = (square - 1) * T(0.5);
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

// The sum of a * b over rows x columns, in double.
template <typename T>
double dot_rows(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t columns) {
    typedef Vector<double, kVectorBytes> Wide;
    typedef Vector<T, kVectorBytes / sizeof(double) * sizeof(T)> V;
    constexpr int64_t lanes = kLanes<Wide>;
    constexpr int chains = 4;
    double total = 0;
    for (int64_t row = 0; row < rows; ++row, a += a_stride, b += b_stride) {
        Wide sum[chains] = {};
        int64_t c = 0;
        for (; c + chains * lanes <= columns; c += chains * lanes) {
            for (int i = 0; i < chains; ++i) {
                sum[i] += __builtin_convertvector(load<V>(a + c + i * lanes), Wide) *
                          __builtin_convertvector(load<V>(b + c + i * lanes), Wide);
            }
        }
        for (; c < columns; c += lanes) {
            sum[0] += __builtin_convertvector(load_part<V>(a + c, columns - c), Wide) *
                      __builtin_convertvector(load_part<V>(b + c, columns - c), Wide);
        }
        total += horizontal_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    return total;
}

// sum += part over rows x columns.
template <typename T>
void add_part(const T* part, int64_t rows, int64_t columns, double* sum, int64_t sum_stride) {
    for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
        for (int64_t c = 0; c < columns; ++c) {
            sum[row * sum_stride + c] += part[row * columns + c];
        }
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

// out [rows, samples, width] = factors[sample] * in, over the rows [begin, end).
template <typename T>
void scale_rows(const T* in, const T* factors, int64_t samples, int64_t width, int64_t begin, int64_t end, T* out) {
    for (int64_t line = begin * samples; line < end * samples; ++line) {
        const T factor = factors[line % samples];
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) {
            out[line * width + c] = factor * in[line * width + c];
        }
    }
}

// out [columns, rows] = the sum over the samples of factors[sample] * in [rows, samples, columns], transposed, for the
// rows [begin, end). Strides in numbers: of in from row to row and from sample to sample.
template <typename T>
void transpose_rows(const T* in, int64_t row_stride, int64_t sample_stride, const T* factors, int64_t samples,
                    int64_t columns, int64_t begin, int64_t end, T* out, int64_t out_stride) {
    constexpr int64_t block = 16;
    T held[block][block];
    for (int64_t row = begin; row < end; row += block) {
        const int64_t rows = end - row < block ? end - row : block;
        for (int64_t column = 0; column < columns; column += block) {
            const int64_t width = columns - column < block ? columns - column : block;
            for (int64_t r = 0; r < rows; ++r) {
                const T* source = in + (row + r) * row_stride + column;
                for (int64_t c = 0; c < width; ++c) {
                    held[r][c] = factors[0] * source[c];
                }
                for (int64_t j = 1; j < samples; ++j) {
                    for (int64_t c = 0; c < width; ++c) {
                        held[r][c] += factors[j] * source[j * sample_stride + c];
                    }
                }
            }
            for (int64_t c = 0; c < width; ++c) {
                T* target = out + (column + c) * out_stride + row;
                for (int64_t r = 0; r < rows; ++r) {
                    target[r] = held[r][c];
                }
            }
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                                                            \
    template double score_tile(const FeatureTile<T>&);                                    \
    template double dot_rows(const T*, int64_t, const T*, int64_t, int64_t, int64_t);     \
    template void add_part(const T*, int64_t, int64_t, double*, int64_t);                 \
    template void sum_parts(const T*, int64_t, int64_t, int64_t, int64_t, T*);            \
    template void scale_rows(const T*, const T*, int64_t, int64_t, int64_t, int64_t, T*); \
    template void transpose_rows(const T*, int64_t, int64_t, const T*, int64_t, int64_t, int64_t, int64_t, T*, int64_t);
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
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "common/memory.h"
#include "common/parallel.h"
#include "common/product.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> double score_tile(const FeatureTile<T>&);
                     template <typename T> double dot_rows(const T*, int64_t, const T*, int64_t, int64_t, int64_t);
                     template <typename T> void add_part(const T*, int64_t, int64_t, double*, int64_t);
                     template <typename T> void sum_parts(const T*, int64_t, int64_t, int64_t, int64_t, T*);
                     template <typename T> void scale_rows(const T*, const T*, int64_t, int64_t, int64_t, int64_t, T*);
                     template <typename T> void transpose_rows(const T*, int64_t, int64_t, const T*, int64_t, int64_t,
                                                               int64_t, int64_t, T*, int64_t);)

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Rows and columns of a block are multiples of this: whole vectors and whole cache lines.
constexpr int64_t kUnit = 16;
// Rows and columns of a tile: larger ones leave less for threads, and outgrow the second-level cache.
constexpr int64_t kTileSize = 288;
// Where there are fewer blocks of columns, W's gradient gets several parts, so that more tiles can be in work at once.
constexpr int64_t kFewestSlots = 8;
// Rows of H that one product reduces to a part of a Gram matrix. The parts are added up in double.
constexpr int64_t kGramRows = 1024;
// Rows of a Gram matrix that are made together, and at most how many sums of parts are made side by side.
constexpr int64_t kGramStripe = 128;
constexpr int64_t kMostGramSums = 8;
// Rows of a task of the other products by squares.
constexpr int64_t kSquareRows = 256;
// Elements of a task.
constexpr int64_t kTaskSize = int64_t{1} << 16;
// The sum of squares as a difference is used as long as it is above this share of what is added and subtracted.
constexpr double kMostCancelled = 1.0 / 64;

constexpr double kLogPi = 1.1447298858494002;
constexpr double kLogTwoPi = 1.8378770664093453;

// [0, size) in pieces of about `target` elements, all but the last a multiple of kUnit.
class Blocks {
 public:
    Blocks(int64_t size, int64_t target)
        : size_(size), units_((size + kUnit - 1) / kUnit), count_((size + target - 1) / target) {}
    int64_t count() const { return count_; }
    int64_t begin(int64_t block) const { return std::min(size_, block * units_ / count_ * kUnit); }
    int64_t size(int64_t block) const { return begin(block + 1) - begin(block); }
    int64_t largest() const { return count_ == 0 ? 0 : (units_ + count_ - 1) / count_ * kUnit; }

 private:
    int64_t size_;
    int64_t units_;
    int64_t count_;
};

// [h, l], or [J, h, l] with a stride from sample to sample.
template <typename T>
struct Weight {
    const T* data;
    int64_t sample_stride;  // 0: shared
    int64_t row_stride;
    int64_t column_stride;
};

template <typename T>
struct Features {
    const T* hidden;
    int64_t rows;
    int64_t samples;
    int64_t width;
    int64_t columns;
    int64_t row_stride;
    int64_t sample_stride;
    Weight<T> weight;
    Weight<T> log_var_weight;
    int64_t likelihood;
    const int64_t* rowptr;
    const int64_t* col;
    const T* values;
    int64_t nnz;
    T pos_weight;
    // Gradients, null where they are not wanted: [n, J, h], [l, J, h], [l, J, h].
    T* hidden_gradient;
    T* weight_gradient;
    T* log_var_gradient;

    const T* hidden_at(int64_t sample, int64_t row) const { return hidden + row * row_stride + sample * sample_stride; }
    // Of a gradient in the order [rows, J, h].
    int64_t line(int64_t sample, int64_t row) const { return (row * samples + sample) * width; }
    int64_t line_stride() const { return samples * width; }
};

// --- Tiles -----------------------------------------------------------------------------------------------------------

// A tile, and its turn among those that add to the same rows of H's gradient, and to the same slot of W's.
struct TileTask {
    int64_t sample;
    int64_t row_block;
    int64_t column_block;
    int64_t slot;
    int64_t row_turn;
    int64_t slot_turn;
};

// All tiles in an order in which neighbours have no rows and no columns in common.
class TileOrder {
 public:
    TileOrder(const Blocks& rows, const Blocks& columns, const std::vector<int64_t>& samples) {
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
    const std::vector<TileTask>& tasks() const { return tasks_; }
    // Parts of W's gradient, to be added up at the end.
    int64_t parts() const { return parts_; }

 private:
    std::vector<TileTask> tasks_;
    int64_t parts_;
};

// Counts the turns of things that one task at a time may touch.
class Turns {
 public:
    explicit Turns(int64_t count) : done_(new std::atomic<int64_t>[count]()) {}
    // False where a task before failed, whose turn never comes to an end.
    bool wait(int64_t index, int64_t turn) const {
        while (done_[index].load(std::memory_order_acquire) < turn) {
            if (failed_.load()) {
                return false;
            }
            std::this_thread::yield();
        }
        return true;
    }
    void end(int64_t index) { done_[index].fetch_add(1, std::memory_order_release); }
    void fail() { failed_.store(true); }

 private:
    std::unique_ptr<std::atomic<int64_t>[]> done_;
    std::atomic<bool> failed_{false};
};

template <typename T>
class TileWorker {
 public:
    TileWorker(const Features<T>& features, const Blocks& rows, const Blocks& columns)
        : p_(features),
          rows_(rows),
          columns_(columns),
          stride_(columns.largest()),
          memory_(new T[(features.likelihood == kGaussian ? 2 : 1) * rows.largest() * stride_ + stride_ + kUnit]) {
        const auto beyond_line = reinterpret_cast<uintptr_t>(memory_.get()) / sizeof(T) % kUnit;
        target_ = memory_.get() + (kUnit - beyond_line);
        outputs_ = target_ + stride_;
        log_vars_ = outputs_ + rows.largest() * stride_;
        std::fill(target_, target_ + stride_, T(0));
    }

    double score(const TileTask& task, bool with_slopes) {
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
    void add_to_hidden(const TileTask& task) {
        const Tensor out = matrix(p_.hidden_gradient + p_.line(task.sample, rows_.begin(task.row_block)),
                                  rows_.size(task.row_block), p_.width, p_.line_stride(), 1);
        const double beta = task.row_turn == 0 ? 0 : 1;
        multiply_add(out, beta, out, 1, tile(task, outputs_), transposed(weight_of(task, p_.weight)));
        if (p_.likelihood == kGaussian) {
            multiply_add(out, 1, out, 1, tile(task, log_vars_), transposed(weight_of(task, p_.log_var_weight)));
        }
    }

    // The same for a gradient of W or V.
    void add_to_weight(const TileTask& task, T* gradient, bool of_log_var) {
        const Tensor out = matrix(gradient + p_.line(task.sample, columns_.begin(task.column_block)),
                                  columns_.size(task.column_block), p_.width, p_.line_stride(), 1);
        const Tensor slopes = transposed(tile(task, of_log_var ? log_vars_ : outputs_));
        multiply_add(out, task.slot_turn == 0 ? 0 : 1, out, 1, slopes, hidden_of(task));
    }

 private:
    static Tensor transposed(const Tensor& tensor) { return torch::stable::transpose(tensor, 0, 1); }
    Tensor tile(const TileTask& task, T* data) const {
        return matrix(data, rows_.size(task.row_block), columns_.size(task.column_block), stride_, 1);
    }
    Tensor hidden_of(const TileTask& task) const {
        return matrix(p_.hidden_at(task.sample, rows_.begin(task.row_block)), rows_.size(task.row_block), p_.width,
                      p_.row_stride, 1);
    }
    Tensor weight_of(const TileTask& task, const Weight<T>& weight) const {
        return matrix(
            weight.data + task.sample * weight.sample_stride + columns_.begin(task.column_block) * weight.column_stride,
            p_.width, columns_.size(task.column_block), weight.row_stride, weight.column_stride);
    }

    const Features<T>& p_;
    const Blocks& rows_;
    const Blocks& columns_;
    int64_t stride_;
    std::unique_ptr<T[]> memory_;
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
    const Blocks rows(p.rows, kTileSize), columns(p.columns, kTileSize);
    const TileOrder order(rows, columns, samples);
    const int64_t slots = columns.count() * order.parts();
    WeightGradient<T> weight(p, p.weight_gradient, order.parts());
    WeightGradient<T> log_var(p, p.log_var_gradient, order.parts());
    const bool with_slopes = p.hidden_gradient != nullptr || weight || log_var;
    std::vector<double> totals(order.tasks().size());
    Turns row_turns(p.samples * rows.count()), slot_turns(p.samples * slots);
    on_every_thread([&](const auto& next) {
        TileWorker<T> worker(p, rows, columns);
        try {
            // Tasks are taken in order, so that those which a task waits for are done or in work.
            for (size_t i = next(); i < totals.size(); i = next()) {
                const TileTask& task = order.tasks()[i];
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

// --- Squares ---------------------------------------------------------------------------------------------------------

// M^T M of matrices of `width` columns.
template <typename T>
class GramMatrices {
 public:
    explicit GramMatrices(int64_t width) : width_(width) {}

    void add(const T* data, int64_t rows, int64_t stride) {
        const int64_t step = std::max(kMostGramSums * kGramRows, (rows + kMostGramSums - 1) / kMostGramSums);
        matrices_.push_back({static_cast<int64_t>(sums_.size()), 0, std::make_unique<T[]>(width_ * width_)});
        for (int64_t begin = 0; begin < rows || begin == 0; begin += step) {
            sums_.push_back({data + begin * stride, std::min(step, rows - begin), stride,
                             std::make_unique<double[]>(width_ * width_)});
            ++matrices_.back().count;
        }
    }

    void make() {
        const int64_t stripes = (width_ + kGramStripe - 1) / kGramStripe;
        for_each_product(static_cast<int64_t>(sums_.size()) * stripes,
                         [&](int64_t task) { add_stripe(sums_[task / stripes], task % stripes * kGramStripe); });
        for_each_task(static_cast<int64_t>(matrices_.size()), [&](int64_t index) {
            Matrix& m = matrices_[index];
            double* total = sums_[m.first].total.get();
            for (int64_t s = m.first + 1; s < m.first + m.count; ++s) {
                SEEGERA_CHOOSE(add_part<double>)(sums_[s].total.get(), width_, width_, total, width_);
            }
            for (int64_t a = 0; a < width_; ++a) {
                for (int64_t b = a; b < width_; ++b) {
                    m.rounded[a * width_ + b] = m.rounded[b * width_ + a] = static_cast<T>(total[a * width_ + b]);
                }
            }
        });
    }

    Tensor rounded(int64_t index) const { return matrix(matrices_[index].rounded.get(), width_, width_, width_, 1); }
    // The sum of the products of the elements of two, and of their magnitudes.
    std::pair<double, double> trace_of_product(int64_t first, int64_t second) const {
        const double* a = sums_[matrices_[first].first].total.get();
        const double* b = sums_[matrices_[second].first].total.get();
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < width_; ++i) {
            const double own = a[i * width_ + i] * b[i * width_ + i];
            double row = 0, row_magnitude = 0;
            for (int64_t k = i * width_ + i + 1; k < (i + 1) * width_; ++k) {
                row += a[k] * b[k];
                row_magnitude += std::abs(a[k] * b[k]);
            }
            sum += own + 2 * row;
            magnitude += own + 2 * row_magnitude;
        }
        return {sum, magnitude};
    }

 private:
    struct Sum {
        const T* data;
        int64_t rows;
        int64_t stride;
        std::unique_ptr<double[]> total;
    };
    struct Matrix {
        int64_t first;
        int64_t count;
        std::unique_ptr<T[]> rounded;
    };

    // The rows [begin, begin + kGramStripe) of the total, from the diagonal block on.
    void add_stripe(const Sum& sum, int64_t begin) const {
        const int64_t height = std::min(kGramStripe, width_ - begin), length = width_ - begin;
        const std::unique_ptr<T[]> part(new T[height * length]);
        for (int64_t row = 0; row < sum.rows; row += kGramRows) {
            const int64_t rows = std::min(kGramRows, sum.rows - row);
            const T* data = sum.data + row * sum.stride + begin;
            multiply(matrix(part.get(), height, length, length, 1), matrix(data, height, rows, 1, sum.stride),
                     matrix(data, rows, length, sum.stride, 1));
            SEEGERA_CHOOSE(add_part<T>)(part.get(), height, length, &sum.total[begin * width_ + begin], width_);
        }
    }

    int64_t width_;
    std::vector<Sum> sums_;
    std::vector<Matrix> matrices_;
};

Tensor sparse_times_dense(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor& dense) {
    // The transpose in its place is for a gradient, which nobody asks for here.
    std::array<StableIValue, 7> stack{torch::stable::detail::from(rowptr), torch::stable::detail::from(col),
                                      torch::stable::detail::from(values), torch::stable::detail::from(rowptr),
                                      torch::stable::detail::from(col),    torch::stable::detail::from(values),
                                      torch::stable::detail::from(dense)};
    TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("seegera_fast::sparse_matmul", "", stack.data(), TORCH_ABI_VERSION));
    return torch::stable::detail::to<Tensor>(stack[0]);
}

// W^T, [l, h] or [l, J h]: W itself, where it lies in memory like that; else W's last dimension is contiguous.
template <typename T>
Tensor weight_by_feature(const Features<T>& p, const Tensor& like) {
    const Weight<T>& weight = p.weight;
    const int64_t matrices = weight.sample_stride == 0 ? 1 : p.samples, lines = matrices * p.width;
    if (weight.row_stride == 1 && (matrices == 1 || weight.sample_stride == p.width)) {
        return matrix(weight.data, p.columns, lines, weight.column_stride, 1);
    }
    Tensor out = torch::stable::new_empty(like, {p.columns, lines});
    expect_large(out);
    T* data = out.mutable_data_ptr<T>();
    const T one = 1;
    const int64_t step = std::max(kUnit, kTaskSize / std::max<int64_t>(1, p.columns) / kUnit * kUnit);
    for (int64_t m = 0; m < matrices; ++m) {
        const T* source = weight.data + m * weight.sample_stride;
        for_each_range(p.width, step, [&](int64_t begin, int64_t end) {
            SEEGERA_CHOOSE(transpose_rows<T>)(source, weight.row_stride, 0, &one, 1, p.columns, begin, end,
                                              data + m * p.width, lines);
        });
    }
    return out;
}

struct Gradients {
    Tensor hidden;
    Tensor weight;
    Tensor log_var;
};

// [rows, J, h], or where it is not wanted, [0, J, h].
template <typename T>
Tensor new_gradient(const Features<T>& p, const Tensor& like, bool wanted, int64_t rows) {
    const std::array<int64_t, 3> sizes{wanted ? rows : 0, p.samples, p.width};
    if (p.rows == 0 || p.columns == 0) {
        // There is no tile that would write to it.
        return torch::stable::new_zeros(like, sizes);
    }
    Tensor tensor = torch::stable::new_empty(like, sizes);
    expect_large(tensor);
    return tensor;
}

struct Wanted {
    bool hidden;
    bool weight;
    bool log_var;
};

// Sets values[j], without constants, and the gradients.
template <typename T>
void by_squares(Features<T>& p, const Tensor& rowptr, const Tensor& col, const Tensor& values_of_x,
                const Tensor& rowptr_t, const Tensor& col_t, const Tensor& values_t, Wanted wanted,
                Gradients& gradients, double* values) {
    const Tensor by_feature = weight_by_feature(p, values_of_x);
    const T* weight_data = by_feature.const_data_ptr<T>();
    const int64_t weight_stride = by_feature.stride(0);
    const bool shared = p.weight.sample_stride == 0;
    const auto own = [&](int64_t sample) { return shared ? 0 : sample; };

    GramMatrices<T> grams(p.width);
    const int64_t weights = shared ? 1 : p.samples;
    for (int64_t m = 0; m < weights; ++m) {
        grams.add(weight_data + m * p.width, p.columns, weight_stride);
    }
    for (int64_t j = 0; j < p.samples; ++j) {
        grams.add(p.hidden_at(j, 0), p.rows, p.row_stride);
    }
    grams.make();

    // Where every sample has its own X W^T, it becomes the gradient of H.
    const Tensor product = sparse_times_dense(rowptr, col, values_of_x, by_feature);
    const T* product_data = product.const_data_ptr<T>();
    const int64_t product_stride = product.size(1);
    gradients.hidden = wanted.hidden && weights == p.samples
                           ? torch::stable::view(product, {p.rows, p.samples, p.width})
                           : new_gradient(p, product, wanted.hidden, p.rows);
    if (wanted.hidden) {
        p.hidden_gradient = gradients.hidden.mutable_data_ptr<T>();
    }
    const Blocks rows(p.rows, kSquareRows);
    std::vector<double> crossed(rows.count() * p.samples);
    for_each_product(rows.count() * p.samples, [&](int64_t task) {
        const int64_t sample = task % p.samples, begin = rows.begin(task / p.samples);
        const int64_t size = rows.size(task / p.samples);
        const T* hidden = p.hidden_at(sample, begin);
        const T* sums = product_data + begin * product_stride + own(sample) * p.width;
        crossed[task] = SEEGERA_CHOOSE(dot_rows<T>)(hidden, p.row_stride, sums, product_stride, size, p.width);
        if (wanted.hidden) {
            const Tensor out = matrix(p.hidden_gradient + p.line(sample, begin), size, p.width, p.line_stride(), 1);
            const Tensor in = p.hidden_gradient == product_data ? out : matrix(sums, size, p.width, product_stride, 1);
            multiply_add(out, 2, in, -2, matrix(hidden, size, p.width, p.row_stride, 1), grams.rounded(own(sample)));
        }
    });

    gradients.weight = new_gradient(p, product, false, 0);
    gradients.log_var = new_gradient(p, product, false, 0);
    if (wanted.weight) {
        gradients.weight = torch::stable::view(
            sparse_times_dense(rowptr_t, col_t, values_t, matrix(p.hidden, p.rows, p.line_stride(), p.row_stride, 1)),
            {p.columns, p.samples, p.width});
        p.weight_gradient = gradients.weight.mutable_data_ptr<T>();
        const Blocks columns(p.columns, kSquareRows);
        for_each_product(columns.count() * p.samples, [&](int64_t task) {
            const int64_t sample = task % p.samples, begin = columns.begin(task / p.samples);
            const int64_t size = columns.size(task / p.samples);
            const Tensor out = matrix(p.weight_gradient + p.line(sample, begin), size, p.width, p.line_stride(), 1);
            const T* weight = weight_data + begin * weight_stride + own(sample) * p.width;
            multiply_add(out, 2, out, -2, matrix(weight, size, p.width, weight_stride, 1),
                         grams.rounded(weights + sample));
        });
    }

    double squared = 0;
    for (int64_t begin = 0; begin < p.nnz; begin += kTaskSize) {
        const T* part = p.values + begin;
        squared += SEEGERA_CHOOSE(dot_rows<T>)(part, 0, part, 0, 1, std::min(kTaskSize, p.nnz - begin));
    }
    std::vector<int64_t> cancelled;
    for (int64_t j = 0; j < p.samples; ++j) {
        double cross = 0;
        for (int64_t block = 0; block < rows.count(); ++block) {
            cross += crossed[block * p.samples + j];
        }
        const auto [trace, magnitude] = grams.trace_of_product(own(j), weights + j);
        const double total = trace - 2 * cross + squared;
        values[j] = -total;
        // An overflow ends up here too: the products of a tile have smaller numbers in them.
        if (!(std::isfinite(total) && total >= kMostCancelled * (magnitude + 2 * std::abs(cross) + squared))) {
            cancelled.push_back(j);
        }
    }
    if (!cancelled.empty()) {
        by_tiles(p, cancelled, values);
    }
}

// --- Operators -------------------------------------------------------------------------------------------------------

// Whether the last two dimensions are a matrix that a product takes as it is, by rows or by columns.
bool is_plain(const Tensor& tensor) {
    const int64_t last = tensor.dim() - 1;
    return (tensor.stride(last) == 1 && tensor.stride(last - 1) >= tensor.size(last)) ||
           (tensor.stride(last - 1) == 1 && tensor.stride(last) >= tensor.size(last - 1));
}

// Whether a weight lies in memory as [l, J h].
bool is_by_feature(const Tensor& weight) {
    const int64_t last = weight.dim() - 1, width = weight.size(last - 1);
    return weight.stride(last - 1) == 1 &&
           (last == 1 || weight.size(0) == 1 || weight.stride(0) == 0 || weight.stride(0) == width);
}

template <typename T>
Weight<T> weight_of(const Tensor& tensor) {
    const int64_t last = tensor.dim() - 1;
    return {tensor.const_data_ptr<T>(), tensor.dim() == 3 ? tensor.stride(0) : 0, tensor.stride(last - 1),
            tensor.stride(last)};
}

using Outcome = std::tuple<Tensor, Tensor, Tensor, Tensor>;

template <typename T>
Outcome run(const Tensor& hidden, const Tensor& weight, const std::optional<Tensor>& log_var_weight,
            const Tensor& rowptr, const Tensor& col, const Tensor& values, const std::optional<Tensor>& rowptr_t,
            const std::optional<Tensor>& col_t, const std::optional<Tensor>& values_t, const Tensor& pos_weight,
            int64_t likelihood, Wanted wanted) {
    Features<T> p{};
    p.rows = hidden.size(0);
    p.samples = hidden.size(1);
    p.width = hidden.size(2);
    p.columns = weight.size(weight.dim() - 1);
    p.hidden = hidden.const_data_ptr<T>();
    p.row_stride = hidden.stride(0);
    p.sample_stride = hidden.stride(1);
    p.weight = weight_of<T>(weight);
    if (log_var_weight) {
        p.log_var_weight = weight_of<T>(*log_var_weight);
    }
    p.likelihood = likelihood;
    p.rowptr = rowptr.const_data_ptr<int64_t>();
    p.col = col.const_data_ptr<int64_t>();
    p.values = values.const_data_ptr<T>();
    p.nnz = col.numel();
    p.pos_weight = static_cast<T>(*pos_weight.const_data_ptr<double>());

    Gradients gradients;
    std::vector<double> totals(p.samples);
    if (rowptr_t) {
        by_squares(p, rowptr, col, values, *rowptr_t, *col_t, *values_t, wanted, gradients, totals.data());
    } else {
        gradients.hidden = new_gradient(p, hidden, wanted.hidden, p.rows);
        gradients.weight = new_gradient(p, hidden, wanted.weight, p.columns);
        gradients.log_var = new_gradient(p, hidden, wanted.log_var, p.columns);
        p.hidden_gradient = wanted.hidden ? gradients.hidden.mutable_data_ptr<T>() : nullptr;
        p.weight_gradient = wanted.weight ? gradients.weight.mutable_data_ptr<T>() : nullptr;
        p.log_var_gradient = wanted.log_var ? gradients.log_var.mutable_data_ptr<T>() : nullptr;
        std::vector<int64_t> all(p.samples);
        std::iota(all.begin(), all.end(), 0);
        by_tiles(p, all, totals.data());
    }
    const double entries = static_cast<double>(p.rows) * static_cast<double>(p.columns);
    const double constant = likelihood == kMse ? -0.5 * kLogPi : likelihood == kGaussian ? -0.5 * kLogTwoPi : 0.0;
    Tensor value = torch::stable::new_empty(hidden, {p.samples});
    for (int64_t j = 0; j < p.samples; ++j) {
        value.mutable_data_ptr<T>()[j] = static_cast<T>(totals[j] + constant * entries);
    }
    return {value, gradients.hidden, gradients.weight, gradients.log_var};
}

// With the transpose of X: mse by squares. Without: by tiles.
Outcome feature_likelihood(const Tensor& hidden, const Tensor& weight, const std::optional<Tensor>& log_var_weight,
                           const Tensor& rowptr, const Tensor& col, const Tensor& values,
                           const std::optional<Tensor>& rowptr_t, const std::optional<Tensor>& col_t,
                           const std::optional<Tensor>& values_t, const Tensor& pos_weight, int64_t likelihood,
                           bool hidden_gradient, bool weight_gradient, bool log_var_gradient) {
    const bool squares = rowptr_t.has_value();
    // The sparse products want one line per node and per feature; the others only whole lines.
    const bool whole_lines = hidden.stride(2) == 1 && hidden.stride(0) >= hidden.size(2) &&
                             (!squares || hidden.size(1) == 1 || hidden.stride(1) == hidden.size(2));
    const bool as_it_is =
        is_plain(weight) && (!squares || weight.stride(weight.dim() - 1) == 1 || is_by_feature(weight));
    const Tensor lines = whole_lines ? hidden : torch::stable::contiguous(hidden);
    const Tensor weights = as_it_is ? weight : torch::stable::contiguous(weight);
    const std::optional<Tensor> log_var = !log_var_weight             ? std::nullopt
                                          : is_plain(*log_var_weight) ? log_var_weight
                                                                      : torch::stable::contiguous(*log_var_weight);
    const Wanted wanted{hidden_gradient, weight_gradient, log_var_gradient};
    const auto run_as = hidden.scalar_type() == ScalarType::Double ? &run<double> : &run<float>;
    return run_as(lines, weights, log_var, rowptr, col, values, rowptr_t, col_t, values_t, pos_weight, likelihood,
                  wanted);
}

// factors [J] * gradient [rows, J, h].
template <typename T>
Tensor scaled(const Tensor& gradient, const T* factors) {
    const int64_t samples = gradient.size(1), width = gradient.size(2);
    Tensor out = torch::stable::new_empty(gradient, {gradient.size(0), samples, width});
    expect_large(out);
    for_each_range(gradient.size(0), kTaskSize / std::max<int64_t>(1, samples * width),
                   [&](int64_t begin, int64_t end) {
                       SEEGERA_CHOOSE(scale_rows<T>)(gradient.const_data_ptr<T>(), factors, samples, width, begin, end,
                                                     out.mutable_data_ptr<T>());
                   });
    return out;
}

// The same for gradients by features [l, J, h], as [J, h, l], or summed over the samples, [h, l].
template <typename T>
Tensor scaled_weight(const Tensor& gradient, const T* factors, bool shared) {
    const int64_t columns = gradient.size(0), samples = gradient.size(1), width = gradient.size(2);
    Tensor out = shared ? torch::stable::new_empty(gradient, {width, columns})
                        : torch::stable::new_empty(gradient, {samples, width, columns});
    expect_large(out);
    const T* in = gradient.const_data_ptr<T>();
    T* data = out.mutable_data_ptr<T>();
    const int64_t step = std::max(kUnit, kTaskSize / std::max<int64_t>(1, samples * width) / kUnit * kUnit);
    for_each_range(columns, step, [&](int64_t begin, int64_t end) {
        for (int64_t j = 0; j < (shared ? 1 : samples); ++j) {
            SEEGERA_CHOOSE(transpose_rows<T>)(in + j * width, samples * width, width, factors + j, shared ? samples : 1,
                                              width, begin, end, data + j * width * columns, columns);
        }
    });
    return out;
}

template <typename T>
std::tuple<Tensor, Tensor, Tensor> scaled_gradients(const Tensor& upstream, const Gradients& gradients, bool shared) {
    const T* factors = upstream.const_data_ptr<T>();
    return {scaled(gradients.hidden, factors), scaled_weight(gradients.weight, factors, shared),
            scaled_weight(gradients.log_var, factors, true)};
}

std::tuple<Tensor, Tensor, Tensor> feature_likelihood_backward(const Tensor& upstream, const Tensor& hidden_gradient,
                                                               const Tensor& weight_gradient,
                                                               const Tensor& log_var_gradient, bool shared_weight) {
    const Tensor factors = torch::stable::contiguous(upstream);
    const Gradients gradients{torch::stable::contiguous(hidden_gradient), torch::stable::contiguous(weight_gradient),
                              torch::stable::contiguous(log_var_gradient)};
    return upstream.scalar_type() == ScalarType::Double ? scaled_gradients<double>(factors, gradients, shared_weight)
                                                        : scaled_gradients<float>(factors, gradients, shared_weight);
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("feature_likelihood", TORCH_BOX(&seegera::feature_likelihood));
    m.impl("feature_likelihood_backward", TORCH_BOX(&seegera::feature_likelihood_backward));
}

#endif
