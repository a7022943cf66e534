// noisy_gcn with dropout. Each draw has a separate mask over the entries of X; an entry has one word for the masks of
// 64 draws. Backward draws the masks again. In the dense layout, lines of X are dropped a tile at a time instead.
#pragma once

#include "noisy_gcn.h"

namespace seegera {

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
    ProductRows<T> out;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

void draw_entry_masks(const EntryMasks& p, int64_t row_begin, int64_t row_end) {
    const PhiloxKey key(p.dropping.seed);
    for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; k += kCounters) {
            const int64_t left = p.rowptr[row + 1] - k, bytes = 8 * (left < kCounters ? left : kCounters);
            Words col{};
            __builtin_memcpy(&col, p.col + k, bytes);
            const Words line = Words{} + static_cast<uint64_t>(row);
            for (int64_t begin = 0; begin < p.num_draws; begin += 64) {
                const int64_t end = p.num_draws - begin < 64 ? p.num_draws : begin + 64;
                Words kept{};
                for (int64_t draw = begin; draw < end; ++draw) {
                    const Words words = philox_entries(key, p.transposed ? col : line,
                                                       philox_draw(kDropoutStream, draw), p.transposed ? line : col);
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
    // One element more, since an entry that is not kept is written as well; the next one overwrites it.
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
            block.put(sum, p.out, line);
        }
    });
    end_rows(p.out);
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
        block.put(sum, p.out, row);
    });
    end_rows(p.out);
}

#define SEEGERA_INSTANTIATE(T)                                                           \
    template void masked_rows(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t); \
    template void masked_columns(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <vector>

namespace seegera {

SEEGERA_FOR_EACH_ISA(void draw_entry_masks(const EntryMasks&, int64_t, int64_t);
                     template <typename T> void masked_rows(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t);
                     template <typename T>
                     void masked_columns(const MaskedRows<T>&, int64_t, int64_t, int64_t, int64_t);)

inline Tensor entry_masks(const NoisyLayer& layer, const Operand& matrix, bool transposed) {
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

// With dropout: a product for each draw.
template <typename T>
void dropped_forward(const NoisyLayer& layer, const Tensor& weight, const Tensor& noise_weight, const Finish<T>& finish,
                     Tensor& out) {
    const int64_t h = layer.width;
    const Tensor noise = layer_noise<T>(layer);
    Tensor product = layer.propagation ? new_tensor(out, {layer.lines(), h}) : out;
    const Finish<T> last = layer.propagation ? Finish<T>{} : finish;
    T* target = product.mutable_data_ptr<T>();
    if (layer.features.dense()) {
        const auto right = contiguous_matrix(weight.const_data_ptr<T>(), layer.num_columns, h);
        multiply_lines<T>(contiguous_matrix(target, layer.lines(), h),
                          {{layer.dropped_features<T>(), right},
                           {{contiguous_matrix(noise.const_data_ptr<T>(), layer.lines(), layer.noise_dim), nullptr},
                            contiguous_matrix(noise_weight.const_data_ptr<T>(), layer.noise_dim, h)}},
                          false, finishing(last, h, target));
    } else {
        const Tensor words = entry_masks(layer, layer.features, false);
        const MaskedRows<T> p{layer.features.times(as_rows<T>(weight)),
                              reinterpret_cast<const uint64_t*>(words.const_data_ptr<int64_t>()),
                              static_cast<T>(layer.dropping.scale),
                              noise.const_data_ptr<T>(),
                              noise_weight.const_data_ptr<T>(),
                              layer.noise_dim,
                              layer.num_draws,
                              h,
                              last,
                              rows_of_product(target, layer.lines(), h)};
        for_each_product_task(p.product, weight, layer.rows(), h, layer.num_draws,
                              [&](const CsrProduct<T>& product, auto... range) {
                                  MaskedRows<T> part = p;
                                  part.product = product;
                                  SEEGERA_CHOOSE(masked_rows<T>)(part, range...);
                              });
    }
    if (layer.propagation) {
        const std::vector<T> bias = repeated(finish.bias, h, layer.num_draws);
        const Finish<T> last{bias.empty() ? nullptr : bias.data(), finish.activation};
        const auto right = contiguous_matrix<const T>(target, layer.rows(), layer.num_draws * h);
        multiply_operand<T>(*layer.propagation, right, last, out.mutable_data_ptr<T>());
    }
}

template <typename T>
void dropped_backward(const NoisyLayer& layer, const Operand& flipped,
                      const std::optional<Operand>& flipped_propagation, const Tensor& gradient, const Optional& output,
                      NoisyGradients& out) {
    const int64_t rows = layer.rows(), h = layer.width;
    Tensor of_product =
        gradient_of_sums<T>(gradient, output, layer.activation, out.bias.numel() > 0 ? &out.bias : nullptr);
    if (flipped_propagation) {
        Tensor mixed = new_tensor(gradient, {rows, layer.num_draws, h});
        multiply_operand<T>(*flipped_propagation, as_rows<T>(of_product), {}, mixed.mutable_data_ptr<T>());
        of_product = mixed;
    }
    const Matrix<const T> right = as_lines<T>(of_product);
    if (out.noise_weight.numel() > 0) {
        const Tensor noise = layer_noise<T>(layer);
        // A few columns: in bfloat16 they would be off by more than the others, and hardly faster.
        const ProductsAt exactly(Precision::highest);
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
    const MaskedRows<T> p{flipped.times(right),
                          reinterpret_cast<const uint64_t*>(words.const_data_ptr<int64_t>()),
                          static_cast<T>(layer.dropping.scale),
                          nullptr,
                          nullptr,
                          0,
                          layer.num_draws,
                          h,
                          {},
                          rows_of_product(out.weight.mutable_data_ptr<T>(), layer.num_columns, h)};
    for_each_product_task(p.product, gradient, layer.num_columns, h, layer.num_draws,
                          [&](const CsrProduct<T>& product, auto... range) {
                              MaskedRows<T> part = p;
                              part.product = product;
                              SEEGERA_CHOOSE(masked_columns<T>)(part, range...);
                          });
}

}  // namespace seegera

#endif
