#pragma once

#include <cstdint>

namespace seegera::cuda {

// A rows x cols matrix: the non-zeros of row r are col[e], values[e] for rowptr[r] <= e < rowptr[r + 1].
template <typename T>
struct Csr {
    const int64_t* __restrict__ rowptr;  // [rows + 1]
    const int64_t* __restrict__ col;     // [nnz]
    const T* __restrict__ values;        // [nnz]
    int64_t rows;
    int64_t nnz;
};

// Non-zeros [begin, end) of one row.
struct Range {
    int64_t begin;
    int64_t end;
};

template <typename T>
__device__ __forceinline__ Range row_range(const Csr<T>& matrix, int64_t row) {
    return {matrix.rowptr[row], matrix.rowptr[row + 1]};
}

// The row that holds a non-zero: the last r with rowptr[r] <= nonzero. 0 <= nonzero < nnz.
template <typename T>
__device__ __forceinline__ int64_t row_of(const Csr<T>& matrix, int64_t nonzero) {
    int64_t low = 0;
    int64_t high = matrix.rows;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (matrix.rowptr[middle] <= nonzero) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// ---- Hub rows ----
//
// The non-zeros of the whole matrix are cut into chunks of kChunk. A row with more than kChunk of them is a hub: one
// warp would take too long over it, so each chunk that it touches gives a partial sum, and a second pass adds them in
// the order of the chunks. A chunk is too short to hold a hub whole, so a hub that touches it has its first non-zero
// (side 0) or, beginning inside it, its last one (side 1): a chunk has two places for partial sums, known without
// reading the matrix on the host.

constexpr int64_t kChunk = 256;

// How many chunks there are to look at; 0 where no row can be a hub.
inline int64_t num_chunks(int64_t nnz) { return nnz > kChunk ? (nnz + kChunk - 1) / kChunk : 0; }

__device__ __forceinline__ bool is_hub(const Range& row) { return row.end - row.begin > kChunk; }

// The non-zeros of a hub that lie in one chunk: one partial sum. Empty where the chunk has no hub on that side.
struct Segment {
    int64_t row;
    Range range;
    bool begins;  // holds the first non-zero of its row
};

template <typename T>
__device__ __forceinline__ Segment hub_segment(const Csr<T>& matrix, int64_t chunk, int side) {
    const int64_t first = chunk * kChunk;
    const int64_t end = first + kChunk < matrix.nnz ? first + kChunk : matrix.nnz;
    const int64_t row = row_of(matrix, side == 0 ? first : end - 1);
    const Range whole = row_range(matrix, row);
    if (!is_hub(whole) || (side == 1 && whole.begin <= first)) return {row, {0, 0}, false};
    const Range range = {whole.begin > first ? whole.begin : first, whole.end < end ? whole.end : end};
    return {row, range, range.begin == whole.begin};
}

}  // namespace seegera::cuda
