// out [n, S, h] = activation(A dropout([X | eps_s]) W + b) for S draws of the noise, and the gradients of W's two parts
// and b. X is by rows, or in full (the dense layout).
//
// [X | eps] W = X W_x + eps W_e is never joined. Without dropout the draws share P = A X W_x, and differ by the product
// of rank c of A eps_s, [n, c], with W_e, which is added to P while a row of it is in registers. Backward sums the
// draws first: the gradient of W_x is X^T (A^T sum_s G_s). With dropout each draw has a mask of its own over the
// entries of X: 64 draws in one word for each entry, which is drawn anew in backward; or, in the dense layout, lines of
// X are dropped a tile at a time.
//
// Floor, without dropout: 2 nnz(X) h operations, or 2 n l h of a dense X, and 2 nnz(A) h, once for all draws, forward
// and again backward; out written once, and read again in backward with its gradient. With dropout, X costs S times as
// much, less what is dropped, and A works on [n, S, h].
#include <cstdint>

#include "common/csr_product.h"
#include "common/isa.h"
#include "common/layer.h"

namespace seegera {

// The noise, 0 or 1, times the factors of dropout where it is on.
template <typename T>
struct DrawnNoise {
    int64_t seed;
    int64_t threshold;
    Dropping dropping;
    int64_t num_draws;
    int64_t noise_dim;
    int64_t first_column;  // where the noise begins in the lines that the mask of dropout was drawn for
    T* out;                // [n, S, c]
};

// Rows of a product that the draws share, plus noise @ weight of each draw.
template <typename T>
struct NoisyRows {
    CsrProduct<T> shared;  // without row pointers: the rows of its dense side as they are
    const T* noise;        // [n, S, c]
    const T* weight;       // [c, h]
    int64_t noise_dim;
    int64_t num_draws;
    int64_t width;
    Finish<T> finish;
    T* out;  // [n, S, h]
};

// Which draws keep an entry of X: bit s % 64 of word s / 64, words [ceil(S / 64), nnz].
struct EntryMasks {
    const int64_t* rowptr;
    const int64_t* col;
    int64_t nnz;
    bool transposed;  // a row of the matrix is a column of X
    Dropping dropping;
    int64_t num_draws;
    uint64_t* words;
};

// The product of X, an entry of which counts in the draws that keep it, with W_x; or that of X^T with [n, S, h].
template <typename T>
struct MaskedRows {
    CsrProduct<T> product;
    const uint64_t* words;
    T scale;
    const T* noise;
    const T* weight;
    int64_t noise_dim;
    int64_t num_draws;
    int64_t width;
    Finish<T> finish;
    T* out;
};

// Backward without dropout, from the gradient and the output [n, S, h].
template <typename T>
struct NoisyGradient {
    Activation activation;
    int64_t num_draws;
    int64_t noise_dim;
    int64_t width;
    const T* gradient;
    const T* output;
    const T* noise;  // [n, S, c]
    T* total;        // [n, h]: the sum over draws
    T* sums;         // [c + 1, h]: a task's part of the gradients of noise_weight and bias
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/philox.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
void draw_noise_lines(const DrawnNoise<T>& p, int64_t line_begin, int64_t line_end) {
    constexpr int64_t chunk = kBlockColumns;
    const PhiloxKey key(p.seed);
    const Event one(p.threshold), dropped(p.dropping.threshold);
    const T scale = static_cast<T>(p.dropping.scale);
    for (int64_t line = line_begin; line < line_end; ++line) {
        const int64_t row = line / p.num_draws, draw = line % p.num_draws;
        for (int64_t begin = 0; begin < p.noise_dim; begin += chunk) {
            const int64_t count = p.noise_dim - begin < chunk ? p.noise_dim - begin : chunk;
            uint32_t noise[chunk], masks[chunk];
            philox_columns(key, row, philox_draw(kNoiseStream, draw), begin, count, noise);
            if (p.dropping.on()) {
                philox_columns(key, row, philox_draw(kDropoutStream, draw), p.first_column + begin, count, masks);
            }
            T* target = p.out + line * p.noise_dim + begin;
            for (int64_t i = 0; i < count; ++i) {
                const bool kept = !p.dropping.on() || !dropped.happens(masks[i]);
                target[i] = one.happens(noise[i]) && kept ? scale : T(0);
            }
        }
    }
}

// sum += noise @ weight
template <typename T, typename Block>
inline void add_noise(const T* noise, const T* weight, int64_t noise_dim, int64_t width, const Block& block,
                      typename Block::Sums& sum) {
    for (int64_t k = 0; k < noise_dim; ++k) {
        block.add(noise[k], weight + k * width, sum);
    }
}

template <typename T>
void noisy_rows(const NoisyRows<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
    const auto finish = [&](int64_t row, auto block, auto& shared) {
        typename decltype(block)::Sums sum;
        if (p.finish.bias != nullptr) {
            block.add(T(1), p.finish.bias, shared);
        }
        for (int64_t line = row * p.num_draws; line < (row + 1) * p.num_draws; ++line) {
            __builtin_memcpy(&sum, &shared, sizeof(sum));
            add_noise(p.noise + line * p.noise_dim, p.weight, p.noise_dim, p.width, block, sum);
            activate(p.finish.activation, sum);
            block.put(sum, p.out + line * p.width);
        }
    };
    if (p.shared.rowptr != nullptr) {
        for_each_product_block(p.shared, row_begin, row_end, column_begin, column_end, finish);
        return;
    }
    for_each_block<T>(row_begin, row_end, column_begin, column_end, [&](int64_t row, auto block) {
        typename decltype(block)::Sums shared = {};
        block.add(T(1), p.shared.dense + row * p.shared.dense_stride, shared);
        finish(row, block, shared);
    });
}

void draw_entry_masks(const EntryMasks& p, int64_t row_begin, int64_t row_end) {
    const PhiloxKey key(p.dropping.seed);
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; k += kCounters) {
            const int64_t left = p.rowptr[row + 1] - k, bytes = 8 * (left < kCounters ? left : kCounters);
            Words col{};
            __builtin_memcpy(&col, p.col + k, bytes);
            const Words own = Words{} + static_cast<uint64_t>(row);
            for (int64_t begin = 0; begin < p.num_draws; begin += 64) {
                const int64_t end = p.num_draws - begin < 64 ? p.num_draws : begin + 64;
                Words kept{};
                for (int64_t draw = begin; draw < end; ++draw) {
                    const Words words = philox_entries(key, p.transposed ? col : own, philox_draw(kDropoutStream, draw),
                                                       p.transposed ? own : col);
                    const auto reached = words >= static_cast<uint64_t>(p.dropping.threshold);
                    kept |= (reached ? Words{} + 1 : Words{}) << (draw - begin);
                }
                __builtin_memcpy(p.words + begin / 64 * p.nnz + k, &kept, bytes);
            }
        }
    }
}

// Kept entries, gathered without branches a few at a time, and then multiplied.
template <typename T>
class KeptEntries {
 public:
    explicit KeptEntries(const CsrProduct<T>& product) : dense_(product.dense), stride_(product.dense_stride) {}

    void add(T value, int64_t line, bool kept) {
        values_[count_] = value;
        lines_[count_] = dense_ + line * stride_;
        count_ += kept;
    }
    bool full() const { return count_ == kMost; }

    template <typename Block>
    void multiply(const Block& block, typename Block::Sums& sum) {
        for (int64_t i = 0; i < count_; ++i) {
            block.fetch(lines_[i + kAhead < count_ ? i + kAhead : i]);
            block.add(values_[i], lines_[i], sum);
        }
        count_ = 0;
    }

 private:
    static constexpr int64_t kMost = 128;
    const T* dense_;
    int64_t stride_;
    int64_t count_ = 0;
    // One more: what is not kept is written and passed over.
    T values_[kMost + 1];
    const T* lines_[kMost + 1];
};

template <typename T>
void masked_rows(const MaskedRows<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
    KeptEntries<T> kept(p.product);
    for_each_block<T>(row_begin, row_end, column_begin, column_end, [&](int64_t row, auto block) {
        for (int64_t draw = 0; draw < p.num_draws; ++draw) {
            typename decltype(block)::Sums sum = {};
            const uint64_t* words = p.words + draw / 64 * p.product.nnz;
            for (int64_t k = p.product.rowptr[row]; k < p.product.rowptr[row + 1]; ++k) {
                kept.add(p.product.values[k] * p.scale, p.product.col[k], words[k] >> (draw % 64) & 1);
                if (kept.full()) {
                    kept.multiply(block, sum);
                }
            }
            kept.multiply(block, sum);
            const int64_t line = row * p.num_draws + draw;
            add_noise(p.noise + line * p.noise_dim, p.weight, p.noise_dim, p.width, block, sum);
            if (p.finish.bias != nullptr) {
                block.add(T(1), p.finish.bias, sum);
            }
            activate(p.finish.activation, sum);
            block.put(sum, p.out + line * p.width);
        }
    });
}

// The same for X^T: an entry meets the lines of all draws that keep it.
template <typename T>
void masked_columns(const MaskedRows<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin,
                    int64_t column_end) {
    KeptEntries<T> kept(p.product);
    for_each_block<T>(row_begin, row_end, column_begin, column_end, [&](int64_t row, auto block) {
        typename decltype(block)::Sums sum = {};
        for (int64_t k = p.product.rowptr[row]; k < p.product.rowptr[row + 1]; ++k) {
            const int64_t first = p.product.col[k] * p.num_draws;
            for (int64_t draw = 0; draw < p.num_draws; ++draw) {
                const uint64_t word = p.words[draw / 64 * p.product.nnz + k];
                kept.add(p.product.values[k] * p.scale, first + draw, word >> (draw % 64) & 1);
                if (kept.full()) {
                    kept.multiply(block, sum);
                }
            }
        }
        kept.multiply(block, sum);
        block.put(sum, p.out + row * p.width);
    });
}

template <typename T>
void noisy_gradient_rows(const NoisyGradient<T>& p, int64_t row_begin, int64_t row_end) {
    using V = Vector<T, kVectorBytes>;
    for (int64_t at = 0; at < (p.noise_dim + 1) * p.width; ++at) {
        p.sums[at] = 0;
    }
    T* bias = p.sums + p.noise_dim * p.width;
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t column = 0; column < p.width; column += kLanes<V>) {
            const int64_t left = p.width - column;
            V total{};
            for (int64_t line = row * p.num_draws; line < (row + 1) * p.num_draws; ++line) {
                V gradient = load_part<V>(p.gradient + line * p.width + column, left);
                if (p.activation != Activation::none) {
                    gradient = through_activation(p.activation, gradient,
                                                  load_part<V>(p.output + line * p.width + column, left));
                }
                total += gradient;
                for (int64_t k = 0; k < p.noise_dim; ++k) {
                    T* target = p.sums + k * p.width + column;
                    store_part(target, load_part<V>(target, left) + gradient * p.noise[line * p.noise_dim + k], left);
                }
            }
            store_part(p.total + row * p.width + column, total, left);
            store_part(bias + column, load_part<V>(bias + column, left) + total, left);
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                                                              \
    template void draw_noise_lines(const DrawnNoise<T>&, int64_t, int64_t);                 \
    template void noisy_rows(const NoisyRows<T>&, int64_t, int64_t, int64_t, int64_t);      \
    template void masked_rows(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t);    \
    template void masked_columns(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t); \
    template void noisy_gradient_rows(const NoisyGradient<T>&, int64_t, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void draw_noise_lines(const DrawnNoise<T>&, int64_t, int64_t);
                     template <typename T> void noisy_rows(const NoisyRows<T>&, int64_t, int64_t, int64_t, int64_t);
                     void draw_entry_masks(const EntryMasks&, int64_t, int64_t);
                     template <typename T> void masked_rows(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t);
                     template <typename T>
                     void masked_columns(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t);
                     template <typename T> void noisy_gradient_rows(const NoisyGradient<T>&, int64_t, int64_t);)

namespace {

using Optional = std::optional<Tensor>;

struct Layer {
    std::optional<Operand> propagation;  // its transpose in backward
    Operand features;
    int64_t num_columns;  // l
    int64_t width;        // h
    int64_t num_draws;
    int64_t noise_dim;
    int64_t noise_threshold;
    Dropping dropping;
    Activation activation;

    int64_t rows() const { return features.rows(); }
    int64_t lines() const { return rows() * num_draws; }
    // X in the dense layout, each row dropped anew for each draw.
    template <typename T>
    Lines<T> dropped_features() const {
        return dropped(DropLines<T>{dropping, num_draws, features.values.const_data_ptr<T>(), num_columns, 0, 0},
                       rows(), num_columns);
    }
};

template <typename T>
Tensor draw_noise(const Layer& layer) {
    Tensor noise = new_tensor(layer.features.values, {layer.rows(), layer.num_draws, layer.noise_dim});
    if (layer.noise_dim > 0) {
        const DrawnNoise<T> p{
            layer.dropping.seed, layer.noise_threshold,      layer.dropping, layer.num_draws, layer.noise_dim,
            layer.num_columns,   noise.mutable_data_ptr<T>()};
        for_each_range(layer.lines(), task_lines(kLineBytes),
                       [&](int64_t begin, int64_t end) { SEEGERA_CHOOSE(draw_noise_lines<T>)(p, begin, end); });
    }
    return noise;
}

// Contiguous rows of `dense`, `columns` numbers each, through the propagation, or as they are where there is none.
template <typename T>
Tensor propagated(const Layer& layer, const Tensor& dense, int64_t columns, const Finish<T>& finish = {}) {
    if (!layer.propagation || columns == 0) {
        return dense;
    }
    Tensor out = new_tensor(dense, {layer.rows(), columns});
    multiply_operand<T>(*layer.propagation, dense.const_data_ptr<T>(), columns, columns, finish,
                        out.mutable_data_ptr<T>());
    return out;
}

Tensor entry_masks(const Layer& layer, const Operand& matrix, bool transposed) {
    const int64_t nnz = matrix.col.numel();
    Tensor words = new_tensor(matrix.col, {(layer.num_draws + 63) / 64, nnz});
    const EntryMasks p{matrix.rowptr.const_data_ptr<int64_t>(),
                       matrix.col.const_data_ptr<int64_t>(),
                       nnz,
                       transposed,
                       layer.dropping,
                       layer.num_draws,
                       reinterpret_cast<uint64_t*>(words.mutable_data_ptr<int64_t>())};
    // A counter costs about as much as forty multiply-adds.
    const auto tasks =
        partition_rows(p.rowptr, matrix.rows(), 1, 1, 1, std::max<int64_t>(1, (int64_t{1} << 13) / layer.num_draws));
    for_each_task(static_cast<int64_t>(tasks.size()),
                  [&](int64_t i) { SEEGERA_CHOOSE(draw_entry_masks)(p, tasks[i].row_begin, tasks[i].row_end); });
    return words;
}

// Without dropout: one product for all draws.
template <typename T>
void shared_forward(const Layer& layer, const Tensor& weight, const Tensor& noise_weight, const Finish<T>& finish,
                    Tensor& out) {
    const int64_t h = layer.width;
    const T* right = weight.const_data_ptr<T>();
    const Tensor noise = propagated<T>(layer, draw_noise<T>(layer), layer.num_draws * layer.noise_dim);
    NoisyRows<T> p{
        {},     noise.const_data_ptr<T>(), noise_weight.const_data_ptr<T>(), layer.noise_dim, layer.num_draws, h,
        finish, out.mutable_data_ptr<T>()};
    const auto run = [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
        SEEGERA_CHOOSE(noisy_rows<T>)(p, row_begin, row_end, column_begin, column_end);
    };
    const Operand& last = layer.propagation ? *layer.propagation : layer.features;
    std::optional<Tensor> product;
    if (layer.propagation) {
        product = new_tensor(weight, {layer.rows(), h});
        multiply_operand<T>(layer.features, right, h, h, {}, product->mutable_data_ptr<T>());
        right = product->const_data_ptr<T>();
    }
    if (!last.dense()) {
        p.shared = last.times(right, h);
        for_each_product_task<T>(p.shared.rowptr, layer.rows(), h, 1, run);
        return;
    }
    Tensor mixed = new_tensor(weight, {layer.rows(), h});
    T* target = mixed.mutable_data_ptr<T>();
    p.shared.dense = target;
    p.shared.dense_stride = h;
    const Matrix<const T> left = last.in_full<T>();
    multiply_lines<T>(contiguous_matrix(target, layer.rows(), h),
                      {{{left, nullptr}, contiguous_matrix(right, left.columns, h)}}, false,
                      [&](int64_t begin, int64_t end) { run(begin, end, 0, h); });
}

// With dropout: a product for each draw.
template <typename T>
void dropped_forward(const Layer& layer, const Tensor& weight, const Tensor& noise_weight, const Finish<T>& finish,
                     Tensor& out) {
    const int64_t h = layer.width;
    const Tensor noise = draw_noise<T>(layer);
    Tensor product = layer.propagation ? new_tensor(out, {layer.lines(), h}) : out;
    const Finish<T> own = layer.propagation ? Finish<T>{} : finish;
    T* target = product.mutable_data_ptr<T>();
    if (layer.features.dense()) {
        const auto right = contiguous_matrix(weight.const_data_ptr<T>(), layer.num_columns, h);
        multiply_lines<T>(contiguous_matrix(target, layer.lines(), h),
                          {{layer.dropped_features<T>(), right},
                           {{contiguous_matrix(noise.const_data_ptr<T>(), layer.lines(), layer.noise_dim), nullptr},
                            contiguous_matrix(noise_weight.const_data_ptr<T>(), layer.noise_dim, h)}},
                          false, finishing(own, h, target));
    } else {
        const Tensor words = entry_masks(layer, layer.features, false);
        const MaskedRows<T> p{layer.features.times(weight.const_data_ptr<T>(), h),
                              reinterpret_cast<const uint64_t*>(words.const_data_ptr<int64_t>()),
                              static_cast<T>(layer.dropping.scale),
                              noise.const_data_ptr<T>(),
                              noise_weight.const_data_ptr<T>(),
                              layer.noise_dim,
                              layer.num_draws,
                              h,
                              own,
                              target};
        for_each_product_task<T>(p.product.rowptr, layer.rows(), h, layer.num_draws,
                                 [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
                                     SEEGERA_CHOOSE(masked_rows<T>)(p, row_begin, row_end, column_begin, column_end);
                                 });
    }
    if (layer.propagation) {
        const std::vector<T> bias = repeated(finish.bias, h, layer.num_draws);
        const Finish<T> last{bias.empty() ? nullptr : bias.data(), finish.activation};
        multiply_operand<T>(*layer.propagation, target, layer.num_draws * h, layer.num_draws * h, last,
                            out.mutable_data_ptr<T>());
    }
}

template <typename T>
Tensor forward(const Layer& layer, const Tensor& weight, const Tensor& noise_weight, const Optional& bias) {
    Tensor out = new_tensor(weight, {layer.rows(), layer.num_draws, layer.width});
    const Finish<T> finish{bias ? bias->const_data_ptr<T>() : nullptr, layer.activation};
    (layer.dropping.on() ? dropped_forward<T> : shared_forward<T>)(layer, weight, noise_weight, finish, out);
    return out;
}

// Where the gradients go; the bias's only where it is wanted.
struct Gradients {
    Tensor weight;
    Tensor noise_weight;
    Tensor bias;
};

template <typename T>
void shared_backward(const Layer& layer, const Operand& flipped, const std::optional<Operand>& flipped_propagation,
                     const Tensor& gradient, const Optional& output, Gradients& out) {
    const int64_t rows = layer.rows(), h = layer.width, c = layer.noise_dim, size = (c + 1) * h;
    const Tensor noise = propagated<T>(layer, draw_noise<T>(layer), layer.num_draws * c);
    Tensor total = new_tensor(gradient, {rows, h});
    const int64_t step = summing_lines(rows, layer.num_draws * h), tasks = (rows + step - 1) / step;
    const Scratch<T> partial(tasks * size);
    const NoisyGradient<T> whole{layer.activation,
                                 layer.num_draws,
                                 c,
                                 h,
                                 gradient.const_data_ptr<T>(),
                                 output ? output->const_data_ptr<T>() : nullptr,
                                 noise.const_data_ptr<T>(),
                                 total.mutable_data_ptr<T>(),
                                 nullptr};
    for_each_range(rows, step, [&](int64_t begin, int64_t end) {
        NoisyGradient<T> p = whole;
        p.sums = partial.get() + begin / step * size;
        SEEGERA_CHOOSE(noisy_gradient_rows<T>)(p, begin, end);
    });
    add_up(partial.get(), tasks, size, c * h, out.noise_weight.mutable_data_ptr<T>());
    add_up(partial.get() + c * h, tasks, size, out.bias.numel(), out.bias.mutable_data_ptr<T>());
    if (out.weight.numel() == 0) {
        return;
    }
    if (flipped_propagation) {
        Tensor mixed = new_tensor(gradient, {rows, h});
        multiply_operand<T>(*flipped_propagation, total.const_data_ptr<T>(), h, h, {}, mixed.mutable_data_ptr<T>());
        total = mixed;
    }
    if (layer.features.dense()) {
        multiply_transposed<T>(contiguous_matrix(out.weight.mutable_data_ptr<T>(), layer.num_columns, h),
                               {layer.features.in_full<T>(), nullptr}, as_lines<T>(total));
    } else {
        multiply_operand<T>(flipped, total.const_data_ptr<T>(), h, h, {}, out.weight.mutable_data_ptr<T>());
    }
}

template <typename T>
void dropped_backward(const Layer& layer, const Operand& flipped, const std::optional<Operand>& flipped_propagation,
                      const Tensor& gradient, const Optional& output, Gradients& out) {
    const int64_t rows = layer.rows(), h = layer.width, columns = layer.num_draws * h;
    Tensor of_product =
        gradient_of_sums<T>(gradient, output, layer.activation, out.bias.numel() > 0 ? &out.bias : nullptr);
    if (flipped_propagation) {
        Tensor mixed = new_tensor(gradient, {rows, layer.num_draws, h});
        multiply_operand<T>(*flipped_propagation, of_product.const_data_ptr<T>(), columns, columns, {},
                            mixed.mutable_data_ptr<T>());
        of_product = mixed;
    }
    const Matrix<const T> right = as_lines<T>(of_product);
    if (out.noise_weight.numel() > 0) {
        const Tensor noise = draw_noise<T>(layer);
        multiply_transposed<T>(contiguous_matrix(out.noise_weight.mutable_data_ptr<T>(), layer.noise_dim, h),
                               {as_lines<T>(noise), nullptr}, right);
    }
    if (out.weight.numel() == 0) {
        return;
    }
    if (layer.features.dense()) {
        multiply_transposed<T>(contiguous_matrix(out.weight.mutable_data_ptr<T>(), layer.num_columns, h),
                               layer.dropped_features<T>(), right);
        return;
    }
    const Tensor words = entry_masks(layer, flipped, true);
    const MaskedRows<T> p{flipped.times(right.data, h),
                          reinterpret_cast<const uint64_t*>(words.const_data_ptr<int64_t>()),
                          static_cast<T>(layer.dropping.scale),
                          nullptr,
                          nullptr,
                          0,
                          layer.num_draws,
                          h,
                          {},
                          out.weight.mutable_data_ptr<T>()};
    for_each_product_task<T>(p.product.rowptr, layer.num_columns, h, layer.num_draws,
                             [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
                                 SEEGERA_CHOOSE(masked_columns<T>)(p, row_begin, row_end, column_begin, column_end);
                             });
}

std::optional<Operand> operand(const Optional& rowptr, const Optional& col, const Optional& values) {
    return rowptr ? std::optional(Operand{*rowptr, *col, *values}) : std::nullopt;
}

// The transposes serve the backward pass.
Tensor noisy_gcn(const Optional& rowptr, const Optional& col, const Optional& values, const Optional&, const Optional&,
                 const Optional&, const Tensor& x_rowptr, const Tensor& x_col, const Tensor& x_values, const Tensor&,
                 const Tensor&, const Tensor&, const Tensor& weight, const Tensor& noise_weight, const Optional& bias,
                 int64_t num_draws, const Tensor& seed, int64_t noise_threshold, int64_t threshold, double scale,
                 int64_t activation) {
    const Layer layer{operand(rowptr, col, values),
                      {x_rowptr, x_col, x_values},
                      weight.size(0),
                      weight.size(1),
                      num_draws,
                      noise_weight.size(0),
                      noise_threshold,
                      {seed.const_data_ptr<int64_t>()[0], threshold, scale},
                      static_cast<Activation>(activation)};
    const Tensor own = torch::stable::contiguous(weight), noise_own = torch::stable::contiguous(noise_weight);
    const Optional row = bias ? Optional(torch::stable::contiguous(*bias)) : std::nullopt;
    const auto run = weight.scalar_type() == ScalarType::Double ? forward<double> : forward<float>;
    return run(layer, own, noise_own, row);
}

// The gradients of weight, noise_weight and bias; the first and the last are empty where they are not wanted.
std::tuple<Tensor, Tensor, Tensor> noisy_gcn_backward(
    const Tensor& gradient, const Optional& output, const Optional& rowptr, const Optional& col, const Optional& values,
    const Optional& rowptr_t, const Optional& col_t, const Optional& values_t, const Tensor& x_rowptr,
    const Tensor& x_col, const Tensor& x_values, const Tensor& x_rowptr_t, const Tensor& x_col_t,
    const Tensor& x_values_t, int64_t noise_dim, const Tensor& seed, int64_t noise_threshold, int64_t threshold,
    double scale, int64_t activation, bool weight_wanted, bool bias_wanted) {
    const Operand flipped{x_rowptr_t, x_col_t, x_values_t};
    const Layer layer{operand(rowptr, col, values),
                      {x_rowptr, x_col, x_values},
                      flipped.rows(),
                      gradient.size(2),
                      gradient.size(1),
                      noise_dim,
                      noise_threshold,
                      {seed.const_data_ptr<int64_t>()[0], threshold, scale},
                      static_cast<Activation>(activation)};
    const Tensor upstream = torch::stable::contiguous(gradient);
    Gradients out{new_tensor(upstream, {weight_wanted ? layer.num_columns : 0, layer.width}),
                  new_tensor(upstream, {noise_dim, layer.width}),
                  new_tensor(upstream, {bias_wanted ? layer.width : 0})};
    const bool dropped = layer.dropping.on(), wide = gradient.scalar_type() == ScalarType::Double;
    const auto run = wide ? (dropped ? dropped_backward<double> : shared_backward<double>)
                          : (dropped ? dropped_backward<float> : shared_backward<float>);
    run(layer, flipped, operand(rowptr_t, col_t, values_t), upstream, output, out);
    return {out.weight, out.noise_weight, out.bias};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) {
    m.impl("noisy_gcn", TORCH_BOX(&seegera::noisy_gcn));
    m.impl("noisy_gcn_backward", TORCH_BOX(&seegera::noisy_gcn_backward));
}

#endif
