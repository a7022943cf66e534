#pragma once

#include <cstdint>

#include "warp.cuh"

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

// The row that holds a non-zero: the last r with rowptr[r] <= nonzero. 0 <= nonzero < nnz. Every lane of the warp has
// to come here, with the same non-zero: each looks at another row, so that a few loads after one another are enough.
__device__ __forceinline__ int64_t row_of(const RowPointers& matrix, int64_t nonzero) {
    int64_t low = 0;
    int64_t high = matrix.rows;
    while (high - low > 1) {
        const int64_t step = (high - low + kWarp - 1) / kWarp;
        const int64_t probe = low + (lane_number() + 1) * step;
        const bool not_after = probe < high && matrix.rowptr[probe] <= nonzero;
        low += __popc(__ballot_sync(kAllLanes, not_after)) * step;
        high = low + step < high ? low + step : high;
    }
    return low;
}

// ---- What one warp takes: a row, or a piece of a hub ----
//
// The non-zeros of the whole matrix are cut into chunks. A row with more of them than a chunk is a hub: one warp would
// take too long over it, so each chunk that it touches holds a separate piece. A chunk is too short to hold a hub
// whole, so a hub that touches it has its first non-zero (side 0) or, beginning inside it, its last one (side 1): a
// chunk has two slots for pieces of hubs, known without reading the matrix on the host. A sum over a hub is one over
// its pieces, in the order of the chunks.

struct Chunks {
    int64_t count;  // 0 where no row can be a hub
    int log2_size;

    __host__ __device__ int64_t slots() const { return 2 * count; }
    __device__ __forceinline__ int64_t size() const { return int64_t{1} << log2_size; }
    __device__ __forceinline__ int64_t holding(int64_t nonzero) const { return nonzero >> log2_size; }
    __device__ __forceinline__ bool is_hub(const Range& row) const { return row.end - row.begin > size(); }
    // Slot of the first piece of a hub whose first non-zero is `begin`. The later ones are on side 0 of the next
    // chunks.
    __device__ __forceinline__ int64_t first_slot(int64_t begin) const {
        return 2 * holding(begin) + ((begin & (size() - 1)) != 0);
    }
    // The chunk after the last one of a hub.
    __device__ __forceinline__ int64_t end_of(const Range& row) const { return holding(row.end - 1) + 1; }
};

inline Chunks chunks_of(int64_t nnz, int log2_size) {
    const int64_t size = int64_t{1} << log2_size;
    return {nnz > size ? (nnz + size - 1) / size : 0, log2_size};
}

// A row, or the part of a hub that lies in one chunk.
struct Piece {
    int64_t row;  // -1: nothing to do; the slot is empty, or the row is a hub
    Range range;
    bool begins;  // holds the first non-zero of its row
};

// Unit u < slots is side u % 2 of chunk u / 2, unit slots + r is row r unless that is a hub. The slots come first: a
// piece of a hub takes longer than most rows. Every lane of the warp has to come here, with the same unit.
__device__ __forceinline__ Piece piece_at(const RowPointers& matrix, const Chunks& chunks, int64_t unit) {
    const Piece nothing = {-1, {0, 0}, false};
    if (unit >= chunks.slots()) {
        const int64_t row = unit - chunks.slots();
        const Range range = row_range(matrix, row);
        return chunks.is_hub(range) ? nothing : Piece{row, range, true};
    }
    const int64_t first = unit / 2 * chunks.size();
    const int64_t end = first + chunks.size() < matrix.nnz ? first + chunks.size() : matrix.nnz;
    const bool last_side = unit % 2 == 1;
    const int64_t row = row_of(matrix, last_side ? end - 1 : first);
    const Range whole = row_range(matrix, row);
    if (!chunks.is_hub(whole) || (last_side && whole.begin <= first)) return nothing;
    const Range range = {whole.begin > first ? whole.begin : first, whole.end < end ? whole.end : end};
    return {row, range, range.begin == whole.begin};
}

}  // namespace seegera::cuda
