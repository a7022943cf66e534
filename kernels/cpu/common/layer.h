// What the layers share: operands, dropout, activations and their gradients on lines. A line is what one draw of one
// row holds, counted draw by draw.
#pragma once

#include <cstdint>

#include "activation.h"
#include "isa.h"

namespace seegera {

// Dropout by the words of a seed: an element is 0 where its word is below the threshold, else multiplied by the scale.
struct Dropping {
    int64_t seed;
    int64_t threshold;
    double scale;
    bool on() const { return scale != 1; }
};

// Lines before and after dropout, or copied as they are where it is off.
template <typename T>
struct DropLines {
    Dropping dropping;
    int64_t num_draws;
    const T* values;
    int64_t row_stride;
    int64_t draw_stride;   // 0: the draws share one line of values
    int64_t first_column;  // where values begin in the lines that the mask was drawn for
};

// The gradient of a layer's sums, from those of its outputs.
template <typename T>
struct ActivationGradient {
    Activation activation;
    int64_t width;
    const T* gradient;
    const T* output;
    T* out;   // null: not computed
    T* sums;  // [width], set to the sum over lines; null: not computed
};

}  // namespace seegera

#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>

#include "csr_product.h"
#include "memory.h"
#include "parallel.h"
#include "product.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(
    // Columns [column_begin, column_end) of lines; out begins with the first of both.
    template <typename T> void drop_lines(const DropLines<T>&, int64_t line_begin, int64_t line_end,
                                          int64_t column_begin, int64_t column_end, T* out, int64_t out_stride);
    // In place, on contiguous lines.
    template <typename T>
    void finish_lines(const Finish<T>&, int64_t width, T* lines, int64_t line_begin, int64_t line_end);
    template <typename T>
    void activation_gradient_lines(const ActivationGradient<T>&, int64_t line_begin, int64_t line_end);)

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A contiguous tensor [n, S, d] as n S lines, or a matrix as it is.
template <typename T>
Matrix<const T> as_lines(const Tensor& tensor) {
    const bool drawn = tensor.dim() == 3;
    return contiguous_matrix(tensor.const_data_ptr<T>(), tensor.size(0) * (drawn ? tensor.size(1) : 1),
                             tensor.size(drawn ? 2 : 1));
}

// A matrix that is constant: by rows, or in full where `values` has two dimensions.
struct Operand {
    Tensor rowptr;
    Tensor col;
    Tensor values;

    bool dense() const { return values.dim() == 2; }
    int64_t rows() const { return rowptr.numel() - 1; }
    template <typename T>
    Matrix<const T> in_full() const {
        return {values.const_data_ptr<T>(), values.size(0), values.size(1), values.stride(0), values.stride(1)};
    }
    template <typename T>
    CsrProduct<T> times(const Matrix<const T>& by_rows) const {
        return {rowptr.const_data_ptr<int64_t>(),
                col.const_data_ptr<int64_t>(),
                values.const_data_ptr<T>(),
                col.numel(),
                by_rows.data,
                by_rows.row_stride,
                by_rows.rows};
    }
};

// What multiply_lines applies to finished lines, which are contiguous from `out` on.
template <typename T>
std::function<void(int64_t, int64_t)> finishing(const Finish<T>& finish, int64_t width, T* out) {
    if (finish.leaves_as_is()) {
        return nullptr;
    }
    return [finish, width, out](int64_t begin, int64_t end) {
        SEEGERA_CHOOSE(finish_lines<T>)(finish, width, out, begin, end);
    };
}

// out [rows, columns] = finish(operand @ right), which is stored by rows.
template <typename T>
void multiply_operand(const Operand& operand, const Matrix<const T>& right, const Finish<T>& finish, T* out) {
    if (!operand.dense()) {
        multiply_csr(operand.times(right), operand.values, finish, out, operand.rows(), right.columns);
        return;
    }
    const Matrix<const T> left = operand.in_full<T>();
    multiply_lines<T>(contiguous_matrix(out, left.rows, right.columns), {{{left, nullptr}, right}}, false,
                      finishing(finish, right.columns, out));
}

// A contiguous tensor [n, ...] as n rows, each with all that it has.
template <typename T>
Matrix<const T> as_rows(const Tensor& tensor) {
    int64_t columns = 1;
    for (int64_t d = 1; d < tensor.dim(); ++d) {
        columns *= tensor.size(d);
    }
    return contiguous_matrix(tensor.const_data_ptr<T>(), tensor.size(0), columns);
}

// The lines of p as the left side of a product.
template <typename T>
Lines<T> dropped(const DropLines<T>& p, int64_t rows, int64_t width) {
    Lines<T> lines;
    lines.memory = {p.values, rows * p.num_draws, width, p.draw_stride, 1};
    if (p.dropping.on()) {
        lines.fill = [p](int64_t begin, int64_t end, int64_t first, int64_t last, T* out, int64_t stride) {
            SEEGERA_CHOOSE(drop_lines<T>)(p, begin, end, first, last, out, stride);
        };
    }
    return lines;
}

// The gradient of lines before dropout: gradient @ weight^T, with the same elements dropped.
template <typename T>
void gradient_of_dropped(const DropLines<T>& mask, const Matrix<const T>& gradient, const Matrix<const T>& weight,
                         T* out) {
    const int64_t width = weight.rows;
    DropLines<T> of_out = mask;
    of_out.values = out;
    of_out.row_stride = mask.num_draws * width;
    of_out.draw_stride = width;
    std::function<void(int64_t, int64_t)> after;
    if (mask.dropping.on()) {
        after = [of_out, width, out](int64_t begin, int64_t end) {
            SEEGERA_CHOOSE(drop_lines<T>)(of_out, begin, end, 0, width, out + begin * width, width);
        };
    }
    multiply_lines<T>(contiguous_matrix(out, gradient.rows, width), {{{gradient, nullptr}, weight.flipped()}}, false,
                      after);
}

// out [count] = the sum over `parts`, in their order, of the first `count` numbers of each, which are `size` apart.
template <typename T>
void add_up(const T* partial, int64_t parts, int64_t size, int64_t count, T* out) {
    std::vector<double> sums(count);
    for (int64_t part = 0; part < parts; ++part) {
        for (int64_t at = 0; at < count; ++at) {
            sums[at] += partial[part * size + at];
        }
    }
    std::copy(sums.begin(), sums.end(), out);
}

// Lines of one task of element-wise work.
inline int64_t task_lines(int64_t width) {
    return std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, width));
}

// The same where each task keeps separate sums: not too many of them.
inline int64_t summing_lines(int64_t lines, int64_t width) {
    return std::max<int64_t>(task_lines(width), (lines + 63) / 64);
}

// The bias, repeated for each of the `draws` lines of a row; empty where there is none.
template <typename T>
std::vector<T> repeated(const T* bias, int64_t width, int64_t draws) {
    std::vector<T> row;
    for (int64_t draw = 0; bias != nullptr && draw < draws; ++draw) {
        row.insert(row.end(), bias, bias + width);
    }
    return row;
}

// The gradient of a layer's sums from the contiguous one of its outputs [n, S, d], and into `bias` [d], where it is
// given, that of the bias.
template <typename T>
Tensor gradient_of_sums(const Tensor& gradient, const std::optional<Tensor>& output, Activation activation,
                        Tensor* bias) {
    const bool as_is = activation == Activation::none;
    Tensor out = as_is ? gradient : new_tensor(gradient, {gradient.size(0), gradient.size(1), gradient.size(2)});
    if (as_is && bias == nullptr) {
        return out;
    }
    const int64_t width = gradient.size(2), lines = gradient.size(0) * gradient.size(1);
    const int64_t step = summing_lines(lines, width), tasks = (lines + step - 1) / step;
    const Scratch<T> partial(bias == nullptr ? 0 : tasks * width);
    // What was saved in the forward pass may come back with other strides.
    const Tensor outputs = as_is ? gradient : torch::stable::contiguous(*output);
    const ActivationGradient<T> whole{activation,
                                      width,
                                      gradient.const_data_ptr<T>(),
                                      as_is ? nullptr : outputs.const_data_ptr<T>(),
                                      as_is ? nullptr : out.mutable_data_ptr<T>(),
                                      nullptr};
    for_each_range(lines, step, [&](int64_t begin, int64_t end) {
        ActivationGradient<T> p = whole;
        p.sums = bias == nullptr ? nullptr : partial.get() + begin / step * width;
        SEEGERA_CHOOSE(activation_gradient_lines<T>)(p, begin, end);
    });
    if (bias != nullptr) {
        add_up(partial.get(), tasks, width, width, bias->mutable_data_ptr<T>());
    }
    return out;
}

}  // namespace seegera

#endif
