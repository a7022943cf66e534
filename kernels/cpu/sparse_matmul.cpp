// out [rows, w] = matrix [rows, cols] in CSR @ dense [cols, w], float32 or float64.
//
// Bits: every element of out is summed over its row's non-zeros in CSR order, by one thread. They depend on the
// instruction set only, neither on the number of threads nor on w.
//
// Floor: nnz * w multiply-adds. Each reads one number of dense, so where dense fits in a cache the rate of that cache
// decides, and where it outgrows the last one, nnz * w * sizeof(T) bytes at the rate at which memory serves rows picked
// at random (measured: a quarter of the rate of a copy). The columns are worked through in slices, so that the part
// of dense in use is smaller and sits in a nearer cache; with 2,708 to 18,333 rows of 512 or 1,024 float32 this is
// 1.2 to 2 times as fast as whole rows, and with 200,000 no slower.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

constexpr int kLineBytes = 64;  // a cache line

template <typename T>
struct SparseMatmul {
    const int64_t* rowptr;
    const int64_t* col;
    const T* values;
    int64_t nnz;
    const T* dense;
    int64_t dense_stride;  // numbers from one row of dense to the next
    T* out;
    int64_t out_stride;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

// Sums in registers: enough independent ones to hide a multiply-add's latency, few enough for 16 registers.
constexpr int kBlockVectors = 8;
// Non-zeros from the one at work to the one whose row of dense is fetched: 4 and 16 did no better, and without any
// fetching, matrices that outgrow a cache took 1.1 to 1.5 times as long.
constexpr int64_t kAhead = 8;

// out[row, column : column + (Count - 1) vectors] and the vector at column + last, which may overlap the one before:
// the shared columns then get the same bits twice, and no tail is left.
template <typename T, int Bytes, int Count>
inline void multiply_block(const SparseMatmul<T>& p, int64_t row, int64_t column, int64_t last) {
    using V = Vector<T, Bytes>;
    constexpr int64_t lanes = Bytes / sizeof(T);
    V sum[Count] = {};
    for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; ++k) {
        const int64_t ahead = k + kAhead < p.nnz ? p.col[k + kAhead] : p.col[k];
        const T* coming = p.dense + ahead * p.dense_stride + column;
        for (int byte = 0; byte < Count * Bytes; byte += kLineBytes) {
            __builtin_prefetch(coming + byte / sizeof(T));
        }
        const T* source = p.dense + p.col[k] * p.dense_stride + column;
        const T value = p.values[k];
        for (int i = 0; i < Count - 1; ++i) {
            sum[i] += value * load<V>(source + i * lanes);
        }
        sum[Count - 1] += value * load<V>(source + last);
    }
    T* target = p.out + row * p.out_stride + column;
    for (int i = 0; i < Count - 1; ++i) {
        store(target + i * lanes, sum[i]);
    }
    store(target + last, sum[Count - 1]);
}

// Full blocks, then a block of Rest vectors for the columns that are left, if any are.
template <typename T, int Bytes, int Rest>
void multiply_rows_by_vectors(const SparseMatmul<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin,
                              int64_t column_end) {
    constexpr int64_t lanes = Bytes / sizeof(T);
    constexpr int64_t full = kBlockVectors * lanes;
    for (int64_t row = row_begin; row < row_end; ++row) {
        int64_t column = column_begin;
        for (; column_end - column >= full; column += full) {
            multiply_block<T, Bytes, kBlockVectors>(p, row, column, full - lanes);
        }
        if constexpr (Rest > 0) {
            multiply_block<T, Bytes, Rest>(p, row, column, column_end - column - lanes);
        }
    }
}

template <typename T, int Bytes, int Rest = kBlockVectors>
void choose_rest(const SparseMatmul<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin,
                 int64_t column_end) {
    constexpr int64_t lanes = Bytes / sizeof(T);
    const int64_t left = (column_end - column_begin) % (kBlockVectors * lanes);
    if constexpr (Rest > 0) {
        if ((left + lanes - 1) / lanes != Rest) {
            choose_rest<T, Bytes, Rest - 1>(p, row_begin, row_end, column_begin, column_end);
            return;
        }
    }
    multiply_rows_by_vectors<T, Bytes, Rest>(p, row_begin, row_end, column_begin, column_end);
}

template <typename T>
void multiply_rows(const SparseMatmul<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin,
                   int64_t column_end) {
    constexpr int kShort = 16;
    const int64_t bytes = (column_end - column_begin) * sizeof(T);
    if (bytes >= kVectorBytes) {
        choose_rest<T, kVectorBytes>(p, row_begin, row_end, column_begin, column_end);
    } else if (bytes >= kShort) {
        choose_rest<T, kShort>(p, row_begin, row_end, column_begin, column_end);
    } else {
        choose_rest<T, sizeof(T)>(p, row_begin, row_end, column_begin, column_end);
    }
}

template void multiply_rows(const SparseMatmul<float>&, int64_t, int64_t, int64_t, int64_t);
template void multiply_rows(const SparseMatmul<double>&, int64_t, int64_t, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "common/csr.h"
#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T>
                     void multiply_rows(const SparseMatmul<T>&, int64_t, int64_t, int64_t, int64_t);)

namespace {

using torch::stable::Tensor;

// Multiply-adds of a task: long enough to hide its start, short enough to balance the threads.
constexpr int64_t kTaskCost = int64_t{1} << 18;
// Width of a column slice (see the top of the file): 256 bytes were slower, 1024 the same.
constexpr int64_t kSliceBytes = 512;

template <typename T>
void multiply(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor& dense, Tensor& out) {
    SparseMatmul<T> p;
    p.rowptr = rowptr.const_data_ptr<int64_t>();
    p.col = col.const_data_ptr<int64_t>();
    p.values = values.const_data_ptr<T>();
    p.nnz = col.numel();
    p.dense = dense.const_data_ptr<T>();
    p.dense_stride = dense.stride(0);
    p.out = out.mutable_data_ptr<T>();
    p.out_stride = out.size(1);
    const auto tasks =
        partition_rows(p.rowptr, out.size(0), out.size(1), kSliceBytes / sizeof(T), kLineBytes / sizeof(T), kTaskCost);
    const auto multiply_task = SEEGERA_CHOOSE(multiply_rows<T>);
    for_each_task(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
        multiply_task(p, tasks[i].row_begin, tasks[i].row_end, tasks[i].column_begin, tasks[i].column_end);
    });
}

// The transpose serves the backward pass, which is this operation again, called from Python.
Tensor sparse_matmul(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor&, const Tensor&,
                     const Tensor&, const Tensor& dense) {
    const int64_t width = dense.size(1);
    const bool contiguous_rows = width <= 1 || dense.stride(1) == 1;
    const Tensor rows = contiguous_rows ? dense : torch::stable::contiguous(dense);
    Tensor out = torch::stable::new_empty(dense, {rowptr.numel() - 1, width});
    if (values.scalar_type() == torch::headeronly::ScalarType::Double) {
        multiply<double>(rowptr, col, values, rows, out);
    } else {
        multiply<float>(rowptr, col, values, rows, out);
    }
    return out;
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("sparse_matmul", TORCH_BOX(&seegera::sparse_matmul)); }

#endif
