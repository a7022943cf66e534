// The product of a matrix in compressed rows with a dense one: what its kernels share, in both halves of a file, and
// the product whose rows end in a bias and an activation while they are in registers (csr_product.cpp).
//
// Bits: an element is summed over its row's non-zeros in CSR order, by one thread. They depend on the instruction set
// only, neither on the number of threads nor on the number of columns.
//
// Floor: nnz * columns multiply-adds, each of which reads one number of dense. Where dense fits in a cache, the rate of
// that cache decides; where it outgrows the last one, nnz * columns numbers at the rate at which memory serves rows
// picked at random (a quarter to a half of that of a copy), and rows * columns numbers written once.
//
// How: a row of the product that fits in registers stays there over all its non-zeros, whose rows of dense are fetched
// ahead. A wider one meets its non-zeros in groups, and each group's rows of dense are read from end to end, a block of
// columns at a time; between groups the sums lie in the first cache. (Passing over all non-zeros for each block instead
// took 1.2 to 3 times as long where the width is a power of two: the blocks of different rows then compete for the same
// few sets of a cache.) Results that outgrow the caches are written past them.
//
// Where dense outgrows what a program gets of the last cache, and its rows are read several times, the product is made
// a tile of columns at a time. The tile of dense is copied first, so that it lies in that cache for all non-zeros,
// without the competition above. Without tiles, on two cores with AVX2, the products of width 512 with the transposed
// features of CS and Physics took three times as long, and those with the adjacency 1.3 and 2 times. Rows as in a
// random graph gain up to some 100,000 of them, where a tile of two cache lines no longer fits. What a program gets of
// the last cache was measured there alone, with two threads.
#pragma once

#include <cstdint>

#include "activation.h"
#include "isa.h"

namespace seegera {

// The widest part of a row that one task works on: its sums have to stay in the first cache.
constexpr int64_t kSliceBytes = 4096;

// A matrix in compressed rows and the dense one that it meets.
template <typename T>
struct CsrProduct {
    const int64_t* rowptr;
    const int64_t* col;
    const T* values;
    int64_t nnz;
    const T* dense;
    int64_t dense_stride;  // numbers from one row of dense to the next
    int64_t dense_rows;
};

// Where the product goes.
template <typename T>
struct ProductRows {
    T* out;
    int64_t stride;
    // Written straight to memory: more than the caches hold, and made up of whole, aligned cache lines.
    bool past_caches;
    T* row(int64_t i) const { return out + i * stride; }
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

// Sums in registers: enough independent ones to hide a multiply-add's latency, few enough for 16 registers.
constexpr int kBlockVectors = 8;
// Where a row fits in one block: non-zeros from the one at work to the one whose row of dense is fetched. 4 and 16 did
// no better, and without any fetching, matrices that outgrow a cache took 1.1 to 1.5 times as long.
constexpr int64_t kAhead = 8;
// Where it does not: non-zeros that are read side by side. 8 and 32 were at most 5 % apart from 16.
constexpr int64_t kGroup = 16;

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
    // Sums in a buffer that holds one vector after the other.
    static void keep(const V (&sum)[Count], T* sums) {
        for (int i = 0; i < Count; ++i) {
            store(sums + i * kVectorLanes, sum[i]);
        }
    }
    static void take(V (&sum)[Count], const T* sums) {
        for (int i = 0; i < Count; ++i) {
            sum[i] = load<V>(sums + i * kVectorLanes);
        }
    }
    void put(const V (&sum)[Count], T* line) const {
        for (int i = 0; i < Count; ++i) {
            store(line + at(i), sum[i]);
        }
    }
    void put(const V (&sum)[Count], const ProductRows<T>& rows, int64_t row) const {
        if constexpr (Bytes == kVectorBytes) {
            if (rows.past_caches) {
                for (int i = 0; i < Count; ++i) {
                    stream(rows.row(row) + at(i), sum[i]);
                }
                return;
            }
        }
        put(sum, rows.row(row));
    }
};

// After the last row that a task puts there.
template <typename T>
inline void end_rows(const ProductRows<T>& rows) {
    if (rows.past_caches) {
        stream_fence();
    }
}

// How a range of columns is cut: full blocks, then a block of Rest vectors for the columns that are left, if any are.
// Narrow: there are fewer columns than in a full block.
template <typename T, int Bytes, int Rest, bool Narrow>
struct ColumnBlocks {
    static constexpr int64_t kVectorLanes = Bytes / sizeof(T);
    static constexpr int64_t kFull = kBlockVectors * kVectorLanes;
    int64_t column_begin;
    int64_t column_end;
    bool single() const { return Narrow || column_end - column_begin <= kFull; }
    // Calls visit(block) for each.
    template <typename Visit>
    void for_each(const Visit& visit) const {
        int64_t column = column_begin;
        if constexpr (!Narrow) {
            for (; column_end - column >= kFull; column += kFull) {
                visit(ColumnBlock<T, Bytes, kBlockVectors>{column, column + kFull - kVectorLanes});
            }
        }
        if constexpr (Rest > 0) {
            visit(ColumnBlock<T, Bytes, Rest>{column, column_end - kVectorLanes});
        }
    }
};

template <typename T, int Bytes, int Rest, bool Narrow, typename Use>
inline void choose_rest(int64_t column_begin, int64_t column_end, const Use& use) {
    constexpr int64_t lanes = Bytes / sizeof(T);
    const int64_t left = (column_end - column_begin) % (kBlockVectors * lanes);
    if constexpr (Rest > 0) {
        if ((left + lanes - 1) / lanes != Rest) {
            choose_rest<T, Bytes, Rest - 1, Narrow>(column_begin, column_end, use);
            return;
        }
    }
    use(ColumnBlocks<T, Bytes, Rest, Narrow>{column_begin, column_end});
}

// Calls use(blocks) with the blocks of a range of columns. Each kind of blocks is code of its own wherever they are
// used: of what is narrower than a vector, only those that can be.
template <typename T, typename Use>
inline void choose_blocks(int64_t column_begin, int64_t column_end, const Use& use) {
    constexpr int kShort = 16;
    const int64_t bytes = (column_end - column_begin) * sizeof(T);
    if (bytes >= kVectorBytes) {
        choose_rest<T, kVectorBytes, kBlockVectors, false>(column_begin, column_end, use);
    } else if (bytes >= kShort) {
        choose_rest<T, kShort, kVectorBytes / kShort, true>(column_begin, column_end, use);
    } else {
        choose_rest<T, sizeof(T), kShort / sizeof(T) - 1, true>(column_begin, column_end, use);
    }
}

// Calls visit(row, block) for each row and each block of its columns.
template <typename T, typename Visit>
inline void for_each_block(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end,
                           const Visit& visit) {
    choose_blocks<T>(column_begin, column_end, [&](auto blocks) {
        for (int64_t row = row_begin; row < row_end; ++row) {
            blocks.for_each([&](auto block) { visit(row, block); });
        }
    });
}

// The same with visit(row, block, sum), sum being the product's. At most kSliceBytes of columns.
template <typename T, typename Visit>
inline void for_each_product_block(const CsrProduct<T>& p, int64_t row_begin, int64_t row_end, int64_t column_begin,
                                   int64_t column_end, const Visit& visit) {
    choose_blocks<T>(column_begin, column_end, [&](auto blocks) {
        if (blocks.single()) {
            for (int64_t row = row_begin; row < row_end; ++row) {
                blocks.for_each([&](auto block) {
                    typename decltype(block)::Sums sum = {};
                    for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; ++k) {
                        block.fetch(p.dense + (k + kAhead < p.nnz ? p.col[k + kAhead] : p.col[k]) * p.dense_stride);
                        block.add(p.values[k], p.dense + p.col[k] * p.dense_stride, sum);
                    }
                    visit(row, block, sum);
                });
            }
            return;
        }
        // The sums between groups. The last vector of a row is stored separately, as it may overlap the one before.
        alignas(kLineBytes) T sums[(kSliceBytes + kVectorBytes) / sizeof(T)];
        for (int64_t row = row_begin; row < row_end; ++row) {
            const int64_t begin = p.rowptr[row], end = p.rowptr[row + 1];
            int64_t first = begin;
            do {
                const int64_t last = end - first > kGroup ? first + kGroup : end;
                const T* lines[kGroup];
                for (int64_t k = first; k < last; ++k) {
                    lines[k - first] = p.dense + p.col[k] * p.dense_stride;
                }
                blocks.for_each([&](auto block) {
                    typename decltype(block)::Sums sum = {};
                    T* kept = sums + block.column - column_begin;
                    if (first > begin) {
                        block.take(sum, kept);
                    }
                    for (int64_t k = first; k < last; ++k) {
                        block.add(p.values[k], lines[k - first], sum);
                    }
                    if (last < end) {
                        block.keep(sum, kept);
                    } else {
                        visit(row, block, sum);
                    }
                });
                first = last;
            } while (first < end);
        }
    });
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include "csr.h"
#include "memory.h"
#include "parallel.h"

namespace seegera {

// `finish` counts columns as the result does.
SEEGERA_FOR_EACH_ISA(template <typename T> void multiply_rows(const CsrProduct<T>&, const Finish<T>& finish,
                                                              const ProductRows<T>&, int64_t row_begin, int64_t row_end,
                                                              int64_t column_begin, int64_t column_end);)

// Columns of a tile of dense, of `columns` in all: so many that a cache holds it, or all, where tiles would not pay.
template <typename T>
int64_t tile_columns(int64_t dense_rows, int64_t columns, int64_t reads) {
    // What two cores get of a last cache that others use too, and what is worth a trial.
    constexpr int64_t cached = int64_t{5} << 20, most = int64_t{12} << 20;
    // To copy a number takes as long as some reads of it from memory.
    constexpr int64_t fewest_reads = 8;
    // Narrower tiles than two lines, which are fetched together, and wider ones than four took longer.
    const int64_t bytes = dense_rows * 4 * kLineBytes <= cached ? 4 * kLineBytes : 2 * kLineBytes;
    const bool outgrows = dense_rows * columns * int64_t{sizeof(T)} > most && dense_rows * bytes <= most;
    const bool wide = columns * int64_t{sizeof(T)} >= 2 * bytes;
    return outgrows && wide && reads >= fewest_reads * dense_rows ? bytes / int64_t{sizeof(T)} : columns;
}

// Calls run(part, row_begin, row_end, column_begin, column_end) for the tasks that make up the product p with the first
// `columns` columns of dense, where a non-zero costs `cost` multiply-adds a column. `part` is p, or has a tile of dense
// that holds these columns; `like` is of the kind of dense.
template <typename T, typename Run>
void for_each_product_task(const CsrProduct<T>& p, const torch::stable::Tensor& like, int64_t rows, int64_t columns,
                           int64_t cost, const Run& run) {
    // Multiply-adds of a task: long enough to hide its start, short enough to balance the threads.
    constexpr int64_t task_cost = int64_t{1} << 18;
    // Columns of a hub row for one thread: narrower pieces of many rows take longer to read.
    constexpr int64_t hub_bytes = 256;
    const int64_t width = tile_columns<T>(p.dense_rows, columns, p.nnz * cost);
    const auto tasks =
        partition_rows(p.rowptr, rows, width, kSliceBytes / sizeof(T), hub_bytes / sizeof(T), task_cost / cost);
    if (width == columns) {
        for_each_task(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
            run(p, tasks[i].row_begin, tasks[i].row_end, tasks[i].column_begin, tasks[i].column_end);
        });
        return;
    }
    torch::stable::Tensor memory = new_tensor(like, {p.dense_rows, width});
    T* const tile = memory.mutable_data_ptr<T>();
    for (int64_t first = 0; first < columns; first += width) {
        const int64_t last = std::min(columns, first + width);
        for_each_range(p.dense_rows, (int64_t{1} << 15) / width, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                std::copy_n(p.dense + row * p.dense_stride + first, last - first, tile + row * width);
            }
        });
        CsrProduct<T> part = p;
        part.dense = tile - first;
        part.dense_stride = width;
        for_each_task(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
            const int64_t begin = first + tasks[i].column_begin, end = std::min(last, first + tasks[i].column_end);
            if (begin < end) {
                run(part, tasks[i].row_begin, tasks[i].row_end, begin, end);
            }
        });
    }
}

// Contiguous rows.
template <typename T>
ProductRows<T> rows_of_product(T* out, int64_t rows, int64_t columns) {
    // More than the second cache: from here on reading each line before it is overwritten takes longer.
    constexpr int64_t large = int64_t{1} << 22;
    const int64_t row_bytes = columns * sizeof(T);
    const bool lines = row_bytes % kLineBytes == 0 && reinterpret_cast<uintptr_t>(out) % kLineBytes == 0;
    return {out, columns, lines && rows * row_bytes > large};
}

// out [rows, columns] = finish(the product).
template <typename T>
void multiply_csr(const CsrProduct<T>& p, const torch::stable::Tensor& like, const Finish<T>& finish, T* out,
                  int64_t rows, int64_t columns) {
    const ProductRows<T> result = rows_of_product(out, rows, columns);
    const auto multiply_task = SEEGERA_CHOOSE(multiply_rows<T>);
    for_each_product_task(p, like, rows, columns, 1, [&](const CsrProduct<T>& part, auto... range) {
        multiply_task(part, finish, result, range...);
    });
}

}  // namespace seegera

#endif
