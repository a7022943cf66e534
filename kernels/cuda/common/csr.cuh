#pragma once

#include <cstdint>

namespace seegera::cuda {

// Where the rows of a CSR matrix lie: row r has the non-zeros e with rowptr[r] <= e < rowptr[r + 1].
struct RowPointers {
    const int64_t* __restrict__ rowptr;  // [rows + 1]
    int64_t rows;
    int64_t nnz;
};

// Non-zeros [begin, end) of one row.
struct Range {
    int64_t begin;
    int64_t end;
};

__device__ __forceinline__ Range row_range(const RowPointers& matrix, int64_t row) {
    return {matrix.rowptr[row], matrix.rowptr[row + 1]};
}

// The row that holds a non-zero: the last r with rowptr[r] <= nonzero. 0 <= nonzero < nnz.
__device__ __forceinline__ int64_t row_of(const RowPointers& matrix, int64_t nonzero) {
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

// ---- What one warp takes: a row, or a piece of a hub ----
//
// The non-zeros of the whole matrix are cut into chunks of kChunk. A row with more than kChunk of them is a hub: one
// warp would take too long over it, so each chunk that it touches is a piece of its own. A chunk is too short to hold a
// hub whole, so a hub that touches it has its first non-zero (side 0) or, beginning inside it, its last one (side 1): a
// chunk has two places for pieces of hubs, known without reading the matrix on the host. A sum over a hub is one over
// its pieces, in the order of the chunks.

constexpr int64_t kChunk = 256;

// How many chunks there are to look at; 0 where no row can be a hub.
inline int64_t num_chunks(int64_t nnz) { return nnz > kChunk ? (nnz + kChunk - 1) / kChunk : 0; }

__device__ __forceinline__ bool is_hub(const Range& row) { return row.end - row.begin > kChunk; }

// Place of the first piece of a hub whose first non-zero is `begin`. The later ones are on side 0 of the next chunks.
__device__ __forceinline__ int64_t first_place(int64_t begin) { return 2 * (begin / kChunk) + (begin % kChunk != 0); }

// A row, or what a hub has in one chunk.
struct Piece {
    int64_t row;  // -1: there is nothing at this place
    Range range;
    bool begins;  // holds the first non-zero of its row
};

// Unit u < 2 * chunks is side u % 2 of chunk u / 2, unit 2 * chunks + r is row r unless that is a hub. The places come
// first: a piece of a hub takes longer than most rows.
__device__ __forceinline__ Piece piece_at(const RowPointers& matrix, int64_t chunks, int64_t unit) {
    const Piece nothing = {-1, {0, 0}, false};
    if (unit >= 2 * chunks) {
        const int64_t row = unit - 2 * chunks;
        const Range range = row_range(matrix, row);
        return is_hub(range) ? nothing : Piece{row, range, true};
    }
    const int64_t first = unit / 2 * kChunk;
    const int64_t end = first + kChunk < matrix.nnz ? first + kChunk : matrix.nnz;
    const bool last_side = unit % 2 == 1;
    const int64_t row = row_of(matrix, last_side ? end - 1 : first);
    const Range whole = row_range(matrix, row);
    if (!is_hub(whole) || (last_side && whole.begin <= first)) return nothing;
    const Range range = {whole.begin > first ? whole.begin : first, whole.end < end ? whole.end : end};
    return {row, range, range.begin == whole.begin};
}

}  // namespace seegera::cuda
