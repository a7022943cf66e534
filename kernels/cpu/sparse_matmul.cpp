// out [rows, w] = matrix [rows, cols] in CSR @ dense [cols, w], float32 or float64.
//
// Bits: every element of out is summed over its row's non-zeros in CSR order, by one thread. They depend on the
// instruction set only, neither on the number of threads nor on w.
//
// Floor: nnz * w multiply-adds, each of which reads one number of dense. Where dense fits in a cache, the rate of that
// cache decides; where it outgrows the last one, nnz * w * sizeof(T) bytes at the rate at which memory serves rows
// picked at random, a quarter to a half of that of a copy.
#include <cstdint>

#include "common/csr.h"
#include "common/isa.h"

namespace seegera {

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

// Up to this width, a row's sums stay in registers over all its non-zeros, a block of columns at a time: enough vectors
// to hide the latency of a multiply-add, few enough for 16 registers. The processor foresees nothing in such rows: the
// ones of the non-zeros this far ahead are fetched early (which took off a third where dense outgrows a cache).
constexpr int64_t kNarrowBytes = 512;
constexpr int kBlockVectors = 8;
constexpr int64_t kAhead = 8;
constexpr int kLineBytes = 64;  // a cache line
// Wider rows of dense are read from end to end, this many at a time, as memory and the processor's own prefetching like
// it; their sums lie in the row of out, which stays in the first cache.
constexpr int kGroup = 8;

// Columns [column, column + width) of a row of out, width being covered by Count vectors. The last one may overlap the
// one before: the shared columns then get the same bits twice, and no tail is left.
template <typename T, int Bytes, int Count>
inline void sum_in_registers(const SparseMatmul<T>& p, int64_t row, int64_t column, int64_t width) {
    using V = Vector<T, Bytes>;
    constexpr int64_t lanes = Bytes / sizeof(T);
    const int64_t last = width - lanes;
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
void narrow_rows(const SparseMatmul<T>& p, const CsrTask& task) {
    constexpr int64_t block = kBlockVectors * Bytes / sizeof(T);
    for (int64_t row = task.row_begin; row < task.row_end; ++row) {
        int64_t column = task.column_begin;
        for (; task.column_end - column >= block; column += block) {
            sum_in_registers<T, Bytes, kBlockVectors>(p, row, column, block);
        }
        if constexpr (Rest > 0) {
            sum_in_registers<T, Bytes, Rest>(p, row, column, task.column_end - column);
        }
    }
}

template <typename T, int Bytes, int Rest = kBlockVectors>
void choose_narrow_rows(const SparseMatmul<T>& p, const CsrTask& task) {
    constexpr int64_t lanes = Bytes / sizeof(T);
    if constexpr (Rest > 0) {
        const int64_t left = (task.column_end - task.column_begin) % (kBlockVectors * lanes);
        if ((left + lanes - 1) / lanes != Rest) {
            choose_narrow_rows<T, Bytes, Rest - 1>(p, task);
            return;
        }
    }
    narrow_rows<T, Bytes, Rest>(p, task);
}

// Adds the non-zeros [k, k + Count) of a row to the whole vectors of its columns; the first of a row start the sums.
template <typename T, int Count>
inline void add_group(const SparseMatmul<T>& p, int64_t k, bool first, int64_t column_begin, int64_t column_end,
                      T* target) {
    using V = Vector<T, kVectorBytes>;
    constexpr int64_t lanes = kVectorBytes / sizeof(T);
    const T* source[Count];
    T value[Count];
    for (int i = 0; i < Count; ++i) {
        source[i] = p.dense + p.col[k + i] * p.dense_stride;
        value[i] = p.values[k + i];
    }
    for (int64_t column = column_begin; column + lanes <= column_end; column += lanes) {
        V sum = {};
        if (!first) {
            sum = load<V>(target + column);
        }
        for (int i = 0; i < Count; ++i) {
            sum += value[i] * load<V>(source[i] + column);
        }
        store(target + column, sum);
    }
}

template <typename T, int Count = kGroup>
inline void add_some(const SparseMatmul<T>& p, int64_t k, int64_t count, bool first, int64_t column_begin,
                     int64_t column_end, T* target) {
    if constexpr (Count > 0) {
        if (count == Count) {
            add_group<T, Count>(p, k, first, column_begin, column_end, target);
        } else {
            add_some<T, Count - 1>(p, k, count, first, column_begin, column_end, target);
        }
    }
}

template <typename T>
void wide_rows(const SparseMatmul<T>& p, const CsrTask& task) {
    constexpr int64_t lanes = kVectorBytes / sizeof(T);
    for (int64_t row = task.row_begin; row < task.row_end; ++row) {
        T* target = p.out + row * p.out_stride;
        const int64_t begin = p.rowptr[row];
        const int64_t end = p.rowptr[row + 1];
        for (int64_t k = begin; k < end; k += kGroup) {
            const int64_t count = end - k < kGroup ? end - k : kGroup;
            add_some(p, k, count, k == begin, task.column_begin, task.column_end, target);
        }
        if (begin == end) {
            for (int64_t column = task.column_begin; column < task.column_end; ++column) {
                target[column] = 0;
            }
        } else if ((task.column_end - task.column_begin) % lanes != 0) {
            sum_in_registers<T, kVectorBytes, 1>(p, row, task.column_end - lanes, lanes);
        }
    }
}

template <typename T>
void multiply_rows(const SparseMatmul<T>& p, const CsrTask& task) {
    constexpr int kShort = 16;
    const int64_t bytes = (task.column_end - task.column_begin) * sizeof(T);
    if (bytes > kNarrowBytes) {
        wide_rows(p, task);
    } else if (bytes >= kVectorBytes) {
        choose_narrow_rows<T, kVectorBytes>(p, task);
    } else if (bytes >= kShort) {
        choose_narrow_rows<T, kShort>(p, task);
    } else {
        choose_narrow_rows<T, sizeof(T)>(p, task);
    }
}

template void multiply_rows(const SparseMatmul<float>&, const CsrTask&);
template void multiply_rows(const SparseMatmul<double>&, const CsrTask&);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void multiply_rows(const SparseMatmul<T>&, const CsrTask&);)

namespace {

using torch::stable::Tensor;

// Multiply-adds of a task: long enough to hide its start, short enough to balance the threads.
constexpr int64_t kTaskCost = int64_t{1} << 18;
// Columns of a hub row for one thread: two cache lines, which a processor fetches as a pair. One line took 20 % longer.
constexpr int64_t kHubBytes = 128;

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
    const auto tasks = partition_rows(p.rowptr, out.size(0), out.size(1), kHubBytes / sizeof(T), kTaskCost);
    const auto multiply_task = SEEGERA_CHOOSE(multiply_rows<T>);
    for_each_task(static_cast<int64_t>(tasks.size()), [&](int64_t i) { multiply_task(p, tasks[i]); });
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
