// The values of X with the removed entries at zero, of its transpose, and of both with their rows divided by the sum of
// their absolute values (a zero row stays zero), each in the order of X and in the order of the transpose.
//
// Floor: three passes. Over X: values and marks (1 byte) give two of the six results; over the transpose: its order and
// columns (8 bytes each) and one gathered value give three; over X again: values and columns give the last.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

// by_row: X with its rows normalised; by_column: with its columns. _t: in the order of the transpose.
template <typename T>
struct MaskEntries {
    const int64_t* rowptr;
    const int64_t* col;
    const int64_t* rowptr_t;
    const int64_t* col_t;
    const int64_t* order;  // entry k of the transpose is entry order[k] of X
    const T* source;
    const uint8_t* removed;
    T* row_scale;     // 1 / sum of absolute values, of each row
    T* column_scale;  // the same of each column
    T* values;
    T* values_t;
    T* by_row;
    T* by_row_t;
    T* by_column;
    T* by_column_t;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/vector.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
inline T inverse_or_zero(T norm) {
    return norm > 0 ? 1 / norm : T(0);
}

template <typename T>
void mask_rows(const MaskEntries<T>& p, int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        T norm = 0;
        for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; ++k) {
            const T value = p.removed[k] ? T(0) : p.source[k];
            p.values[k] = value;
            norm += magnitude(value);
        }
        const T scale = inverse_or_zero(norm);
        p.row_scale[row] = scale;
        for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; ++k) {
            p.by_row[k] = p.values[k] * scale;
        }
    }
}

// Rows of the transpose, after mask_rows of all rows.
template <typename T>
void transpose_rows(const MaskEntries<T>& p, int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        T norm = 0;
        for (int64_t k = p.rowptr_t[row]; k < p.rowptr_t[row + 1]; ++k) {
            const T value = p.values[p.order[k]];
            p.values_t[k] = value;
            p.by_row_t[k] = value * p.row_scale[p.col_t[k]];
            norm += magnitude(value);
        }
        const T scale = inverse_or_zero(norm);
        p.column_scale[row] = scale;
        for (int64_t k = p.rowptr_t[row]; k < p.rowptr_t[row + 1]; ++k) {
            p.by_column_t[k] = p.values_t[k] * scale;
        }
    }
}

// After transpose_rows of all of them.
template <typename T>
void scale_columns(const MaskEntries<T>& p, int64_t row_begin, int64_t row_end) {
    for (int64_t k = p.rowptr[row_begin]; k < p.rowptr[row_end]; ++k) {
        p.by_column[k] = p.values[k] * p.column_scale[p.col[k]];
    }
}

template void mask_rows(const MaskEntries<float>&, int64_t, int64_t);
template void mask_rows(const MaskEntries<double>&, int64_t, int64_t);
template void transpose_rows(const MaskEntries<float>&, int64_t, int64_t);
template void transpose_rows(const MaskEntries<double>&, int64_t, int64_t);
template void scale_columns(const MaskEntries<float>&, int64_t, int64_t);
template void scale_columns(const MaskEntries<double>&, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <memory>
#include <tuple>
#include <vector>

#include "common/csr.h"
#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void mask_rows(const MaskEntries<T>&, int64_t, int64_t);
                     template <typename T> void transpose_rows(const MaskEntries<T>&, int64_t, int64_t);
                     template <typename T> void scale_columns(const MaskEntries<T>&, int64_t, int64_t);)

namespace {

using torch::stable::Tensor;

// Entries of a task.
constexpr int64_t kTaskCost = int64_t{1} << 15;

template <typename T>
void mask(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor& rowptr_t, const Tensor& col_t,
          const Tensor& order, const Tensor& removed, Tensor (&out)[6]) {
    const int64_t rows = rowptr.numel() - 1, columns = rowptr_t.numel() - 1;
    const std::unique_ptr<T[]> row_scale(new T[rows]), column_scale(new T[columns]);
    MaskEntries<T> p;
    p.rowptr = rowptr.const_data_ptr<int64_t>();
    p.col = col.const_data_ptr<int64_t>();
    p.rowptr_t = rowptr_t.const_data_ptr<int64_t>();
    p.col_t = col_t.const_data_ptr<int64_t>();
    p.order = order.const_data_ptr<int64_t>();
    p.source = values.const_data_ptr<T>();
    p.removed = reinterpret_cast<const uint8_t*>(removed.const_data_ptr<bool>());
    p.row_scale = row_scale.get();
    p.column_scale = column_scale.get();
    T** const results[6] = {&p.values, &p.values_t, &p.by_row, &p.by_row_t, &p.by_column, &p.by_column_t};
    for (int i = 0; i < 6; ++i) {
        *results[i] = out[i].mutable_data_ptr<T>();
    }
    const auto by_rows = partition_rows(p.rowptr, rows, 1, 1, 1, kTaskCost);
    const auto by_columns = partition_rows(p.rowptr_t, columns, 1, 1, 1, kTaskCost);
    const auto pass = [&](const std::vector<CsrTask>& tasks, const auto& run) {
        for_each_task(static_cast<int64_t>(tasks.size()),
                      [&](int64_t i) { run(p, tasks[i].row_begin, tasks[i].row_end); });
    };
    pass(by_rows, SEEGERA_CHOOSE(mask_rows<T>));
    pass(by_columns, SEEGERA_CHOOSE(transpose_rows<T>));
    pass(by_rows, SEEGERA_CHOOSE(scale_columns<T>));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> mask_entries(const Tensor& rowptr, const Tensor& col,
                                                                        const Tensor& values, const Tensor& rowptr_t,
                                                                        const Tensor& col_t, const Tensor& order,
                                                                        const Tensor& removed) {
    const auto empty = [&] { return torch::stable::new_empty(values, {values.numel()}); };
    Tensor out[6] = {empty(), empty(), empty(), empty(), empty(), empty()};
    if (values.scalar_type() == torch::headeronly::ScalarType::Double) {
        mask<double>(rowptr, col, values, rowptr_t, col_t, order, removed, out);
    } else {
        mask<float>(rowptr, col, values, rowptr_t, col_t, order, removed, out);
    }
    return {out[0], out[1], out[2], out[3], out[4], out[5]};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("mask_entries", TORCH_BOX(&seegera::mask_entries)); }

#endif
