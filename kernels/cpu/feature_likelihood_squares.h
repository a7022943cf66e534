// log p(X | H W) of mse by squares: the sum of (O - X)^2 is tr((H^T H)(W W^T)) - 2 <H, X W^T> + <X, X>, its gradients
// are 2 (H (W W^T) - X W^T) and 2 (W^T (H^T H) - X^T H). The sparse product X W^T serves both the value and
// the gradient.
//
// Floor: 3 (n + l) h^2 operations (the two Gram matrices are symmetric, which saves half of theirs) and 4 nnz h. Where
// too many digits cancel (kMostCancelled), tiles are used instead.
#pragma once

#include <cstdint>

#include "common/isa.h"
#include "feature_likelihood.h"
#include "feature_likelihood_tiles.h"

#ifndef SEEGERA_REGISTER

#include "common/vector.h"

namespace seegera {
namespace SEEGERA_ISA {

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

#define SEEGERA_INSTANTIATE(T)                                                        \
    template double dot_rows(const T*, int64_t, const T*, int64_t, int64_t, int64_t); \
    template void add_part(const T*, int64_t, int64_t, double*, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/layer.h"
#include "common/parallel.h"
#include "common/product.h"
#include "common/tiles.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> double dot_rows(const T*, int64_t, const T*, int64_t, int64_t, int64_t);
                     template <typename T> void add_part(const T*, int64_t, int64_t, double*, int64_t);)

// Rows of H that one product reduces to a part of a Gram matrix. The parts are added up in double.
constexpr int64_t kGramRows = 1024;
// Rows of a Gram matrix that are made together, and at most how many sums of parts are made side by side.
constexpr int64_t kGramStripe = 128;
constexpr int64_t kMostGramSums = 8;
// Rows of a task of the other products by squares.
constexpr int64_t kSquareRows = 256;
// The difference is used while it exceeds this share of the numbers that are added and subtracted; tiles otherwise.
constexpr double kMostCancelled = 1.0 / 64;

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
                    const T element = static_cast<T>(total[a * width_ + b]);
                    m.rounded[a * width_ + b] = m.rounded[b * width_ + a] = element;
                    m.finite = m.finite && std::isfinite(element);
                }
            }
        });
    }

    seegera::Matrix<const T> rounded(int64_t index) const {
        return contiguous_matrix<const T>(matrices_[index].rounded.get(), width_, width_);
    }
    // Whether all elements are finite after they were rounded.
    bool finite(int64_t index) const { return matrices_[index].finite; }
    // The sum of the products of the elements of two, and of their magnitudes.
    std::pair<double, double> trace_of_product(int64_t first, int64_t second) const {
        const double* a = sums_[matrices_[first].first].total.get();
        const double* b = sums_[matrices_[second].first].total.get();
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < width_; ++i) {
            const double diagonal = a[i * width_ + i] * b[i * width_ + i];
            double row = 0, row_magnitude = 0;
            for (int64_t k = i * width_ + i + 1; k < (i + 1) * width_; ++k) {
                row += a[k] * b[k];
                row_magnitude += std::abs(a[k] * b[k]);
            }
            sum += diagonal + 2 * row;
            magnitude += diagonal + 2 * row_magnitude;
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
        bool finite = true;
    };

    // The rows [begin, begin + kGramStripe) of the total, from the diagonal block on.
    void add_stripe(const Sum& sum, int64_t begin) const {
        const int64_t height = std::min(kGramStripe, width_ - begin), length = width_ - begin;
        const std::unique_ptr<T[]> part(new T[height * length]);
        for (int64_t row = 0; row < sum.rows; row += kGramRows) {
            const int64_t rows = std::min(kGramRows, sum.rows - row);
            const T* data = sum.data + row * sum.stride + begin;
            multiply<T>(contiguous_matrix(part.get(), height, length), {data, height, rows, 1, sum.stride},
                        {data, rows, length, sum.stride, 1});
            SEEGERA_CHOOSE(add_part<T>)(part.get(), height, length, &sum.total[begin * width_ + begin], width_);
        }
    }

    int64_t width_;
    std::vector<Sum> sums_;
    std::vector<Matrix> matrices_;
};

// W^T, [l, h] or [l, J h]: W itself, where it lies in memory like that; else W's last dimension is contiguous.
template <typename T>
Tensor weight_by_feature(const Features<T>& p, const Tensor& like) {
    const FeatureWeight<T>& weight = p.weight;
    const int64_t matrices = weight.sample_stride == 0 ? 1 : p.samples, lines = matrices * p.width;
    if (weight.row_stride == 1 && (matrices == 1 || weight.sample_stride == p.width)) {
        return as_tensor(Matrix<const T>{weight.data, p.columns, lines, weight.column_stride, 1});
    }
    Tensor out = new_tensor(like, {p.columns, lines});
    T* data = out.mutable_data_ptr<T>();
    const T one = 1;
    for (int64_t m = 0; m < matrices; ++m) {
        const T* source = weight.data + m * weight.sample_stride;
        for_each_range(p.width, transposed_rows(p.columns), [&](int64_t begin, int64_t end) {
            SEEGERA_CHOOSE(transpose_rows<T>)(source, weight.row_stride, 0, &one, 1, p.columns, begin, end,
                                              data + m * p.width, lines);
        });
    }
    return out;
}

// Sets values[j], without constants, and the gradients.
template <typename T>
void by_squares(Features<T>& p, const Operand& features, const Operand& flipped, WantedGradients wanted,
                FeatureGradients& gradients, double* values) {
    const Tensor by_feature = weight_by_feature(p, features.values);
    const T* weight_data = by_feature.const_data_ptr<T>();
    const int64_t weight_stride = by_feature.stride(0);
    const bool shared = p.weight.sample_stride == 0;
    const auto weight_of = [&](int64_t sample) { return shared ? 0 : sample; };

    GramMatrices<T> grams(p.width);
    const int64_t weights = shared ? 1 : p.samples;
    for (int64_t m = 0; m < weights; ++m) {
        grams.add(weight_data + m * p.width, p.columns, weight_stride);
    }
    for (int64_t j = 0; j < p.samples; ++j) {
        grams.add(p.hidden_at(j, 0), p.rows, p.row_stride);
    }
    grams.make();

    // Where each sample has a separate X W^T, the gradient of H overwrites it.
    Tensor product = new_tensor(by_feature, {p.rows, by_feature.size(1)});
    multiply_operand<T>(features, {weight_data, p.columns, product.size(1), weight_stride, 1}, {},
                        product.mutable_data_ptr<T>());
    const T* product_data = product.const_data_ptr<T>();
    const int64_t product_stride = product.size(1);
    gradients.hidden = wanted.hidden && weights == p.samples
                           ? torch::stable::view(product, {p.rows, p.samples, p.width})
                           : new_gradient(p, product, wanted.hidden, p.rows);
    if (wanted.hidden) {
        p.hidden_gradient = gradients.hidden.mutable_data_ptr<T>();
    }
    const Blocks rows = Blocks::of_at_most(p.rows, kSquareRows);
    std::vector<double> crossed(rows.count() * p.samples);
    for_each_product(rows.count() * p.samples, [&](int64_t task) {
        const int64_t sample = task % p.samples, begin = rows.begin(task / p.samples);
        const int64_t size = rows.size(task / p.samples);
        const T* hidden = p.hidden_at(sample, begin);
        const T* sums = product_data + begin * product_stride + weight_of(sample) * p.width;
        crossed[task] = SEEGERA_CHOOSE(dot_rows<T>)(hidden, p.row_stride, sums, product_stride, size, p.width);
        if (wanted.hidden) {
            T* out = p.hidden_gradient + p.line(sample, begin);
            for (int64_t row = 0; p.hidden_gradient != product_data && row < size; ++row) {
                std::copy_n(sums + row * product_stride, p.width, out + row * p.line_stride());
            }
            multiply<T>({out, size, p.width, p.line_stride(), 1}, {hidden, size, p.width, p.row_stride, 1},
                        grams.rounded(weight_of(sample)), 2, -2);
        }
    });

    gradients.weight = new_gradient(p, product, false, 0);
    gradients.log_var = new_gradient(p, product, false, 0);
    if (wanted.weight) {
        gradients.weight = new_tensor(product, {p.columns, p.samples, p.width});
        p.weight_gradient = gradients.weight.mutable_data_ptr<T>();
        multiply_operand<T>(flipped, {p.hidden, p.rows, p.line_stride(), p.row_stride, 1}, {}, p.weight_gradient);
        const Blocks columns = Blocks::of_at_most(p.columns, kSquareRows);
        for_each_product(columns.count() * p.samples, [&](int64_t task) {
            const int64_t sample = task % p.samples, begin = columns.begin(task / p.samples);
            const int64_t size = columns.size(task / p.samples);
            T* out = p.weight_gradient + p.line(sample, begin);
            const T* weight = weight_data + begin * weight_stride + weight_of(sample) * p.width;
            multiply<T>({out, size, p.width, p.line_stride(), 1}, {weight, size, p.width, weight_stride, 1},
                        grams.rounded(weights + sample), 2, -2);
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
        const auto [trace, magnitude] = grams.trace_of_product(weight_of(j), weights + j);
        const double total = trace - 2 * cross + squared;
        values[j] = -total;
        // Also after an overflow: the numbers in a tile are smaller than those in the Gram matrices.
        const bool finite = std::isfinite(total) && grams.finite(weight_of(j)) && grams.finite(weights + j);
        if (!(finite && total >= kMostCancelled * (magnitude + 2 * std::abs(cross) + squared))) {
            cancelled.push_back(j);
        }
    }
    if (!cancelled.empty()) {
        by_tiles(p, cancelled, values);
    }
}

}  // namespace seegera

#endif
