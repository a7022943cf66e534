// The product of a matrix in compressed rows with a dense one: what its kernels share, in both halves of a file.
//
// Bits: an element is summed over its row's non-zeros in CSR order, by one thread. They depend on the instruction set
// only, neither on the number of threads nor on the number of columns.
//
// Cost: nnz * columns multiply-adds. Each reads one number of dense, so where dense fits in a cache the rate of that
// cache decides, and where it outgrows the last one, nnz * columns numbers at the rate at which memory serves rows
// picked at random (measured: a quarter of the rate of a copy). The columns are worked through in slices, so that the
// part of dense in use is smaller and sits in a nearer cache; with 2,708 to 18,333 rows of 512 or 1,024 float32 this is
// 1.2 to 2 times as fast as whole rows, and with 200,000 no slower.
#pragma once

#include <cstdint>

#include "activation.h"
#include "isa.h"

namespace seegera {

constexpr int kLineBytes = 64;  // a cache line

// A matrix in compressed rows and the dense one that it meets.
template <typename T>
struct CsrProduct {
    const int64_t* rowptr;
    const int64_t* col;
    const T* values;
    int64_t nnz;
    const T* dense;
    int64_t dense_stride;  // numbers from one row of dense to the next
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

// The columns that one pass over a row's non-zeros serves: Count vectors. The last one may overlap the one before: the
// shared columns then get the same bits twice, and no tail is left.
template <typename T, int Bytes, int Count>
struct ColumnBlock {
    using V = Vector<T, Bytes>;
    using Sums = V[Count];
    static constexpr int64_t kVectorLanes = Bytes / sizeof(T);
    int64_t column;
    int64_t last;  // the last vector's column
    int64_t at(int i) const { return i + 1 < Count ? column + i * kVectorLanes : last; }
    void fetch(const T* line) const {
        for (int byte = 0; byte < Count * Bytes; byte += kLineBytes) {
            __builtin_prefetch(line + column + byte / sizeof(T));
        }
    }
    // sum += factor * line
    void add(T factor, const T* line, V (&sum)[Count]) const {
        for (int i = 0; i < Count; ++i) {
            sum[i] += factor * load<V>(line + at(i));
        }
    }
    void put(const V (&sum)[Count], T* line) const {
        for (int i = 0; i < Count; ++i) {
            store(line + at(i), sum[i]);
        }
    }
};

// sum += the row of the product.
template <typename T, int Bytes, int Count>
inline void add_product_row(const CsrProduct<T>& p, int64_t row, const ColumnBlock<T, Bytes, Count>& block,
                            Vector<T, Bytes> (&sum)[Count]) {
    for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; ++k) {
        block.fetch(p.dense + (k + kAhead < p.nnz ? p.col[k + kAhead] : p.col[k]) * p.dense_stride);
        block.add(p.values[k], p.dense + p.col[k] * p.dense_stride, sum);
    }
}

// Full blocks, then a block of Rest vectors for the columns that are left, if any are.
template <typename T, int Bytes, int Rest, typename Visit>
inline void visit_blocks(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end,
                         const Visit& visit) {
    constexpr int64_t lanes = Bytes / sizeof(T);
    constexpr int64_t full = kBlockVectors * lanes;
    for (int64_t row = row_begin; row < row_end; ++row) {
        int64_t column = column_begin;
        for (; column_end - column >= full; column += full) {
            visit(row, ColumnBlock<T, Bytes, kBlockVectors>{column, column + full - lanes});
        }
        if constexpr (Rest > 0) {
            visit(row, ColumnBlock<T, Bytes, Rest>{column, column_end - lanes});
        }
    }
}

template <typename T, int Bytes, int Rest, typename Visit>
inline void choose_rest(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end,
                        const Visit& visit) {
    constexpr int64_t lanes = Bytes / sizeof(T);
    const int64_t left = (column_end - column_begin) % (kBlockVectors * lanes);
    if constexpr (Rest > 0) {
        if ((left + lanes - 1) / lanes != Rest) {
            choose_rest<T, Bytes, Rest - 1>(row_begin, row_end, column_begin, column_end, visit);
            return;
        }
    }
    visit_blocks<T, Bytes, Rest>(row_begin, row_end, column_begin, column_end, visit);
}

// Calls visit(row, block) for each row and each block of its columns.
template <typename T, typename Visit>
inline void for_each_block(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end,
                           const Visit& visit) {
    constexpr int kShort = 16;
    const int64_t bytes = (column_end - column_begin) * sizeof(T);
    if (bytes >= kVectorBytes) {
        choose_rest<T, kVectorBytes, kBlockVectors>(row_begin, row_end, column_begin, column_end, visit);
    } else if (bytes >= kShort) {
        choose_rest<T, kShort, kBlockVectors>(row_begin, row_end, column_begin, column_end, visit);
    } else {
        choose_rest<T, sizeof(T), kBlockVectors>(row_begin, row_end, column_begin, column_end, visit);
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include "csr.h"
#include "parallel.h"

namespace seegera {

// Defined in sparse_matmul.cpp. `finish` counts columns as out does.
SEEGERA_FOR_EACH_ISA(template <typename T> void multiply_rows(const CsrProduct<T>&, const Finish<T>& finish, T* out,
                                                              int64_t out_stride, int64_t row_begin, int64_t row_end,
                                                              int64_t column_begin, int64_t column_end);)

// Calls run(row_begin, row_end, column_begin, column_end) for the tasks that make up a product of `columns` columns,
// where a non-zero costs `cost` multiply-adds a column.
template <typename T, typename Run>
void for_each_product_task(const int64_t* rowptr, int64_t rows, int64_t columns, int64_t cost, const Run& run) {
    // Multiply-adds of a task: long enough to hide its start, short enough to balance the threads.
    constexpr int64_t task_cost = int64_t{1} << 18;
    // Width of a column slice (see the top of the file): 256 bytes were slower, 1024 the same.
    constexpr int64_t slice_bytes = 512;
    const auto tasks =
        partition_rows(rowptr, rows, columns, slice_bytes / sizeof(T), kLineBytes / sizeof(T), task_cost / cost);
    for_each_task(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
        run(tasks[i].row_begin, tasks[i].row_end, tasks[i].column_begin, tasks[i].column_end);
    });
}

// out [rows, columns] = finish(the product).
template <typename T>
void multiply_csr(const CsrProduct<T>& p, const Finish<T>& finish, T* out, int64_t rows, int64_t columns) {
    const auto multiply_task = SEEGERA_CHOOSE(multiply_rows<T>);
    for_each_product_task<T>(p.rowptr, rows, columns, 1,
                             [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
                                 multiply_task(p, finish, out, columns, row_begin, row_end, column_begin, column_end);
                             });
}

}  // namespace seegera

#endif
