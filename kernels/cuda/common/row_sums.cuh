#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>

#include "csr.cuh"
#include "launch.cuh"
#include "warp.cuh"

namespace seegera::cuda {

// Sums over the rows of a CSR matrix, in a fixed order. `Rows` says of what:
//   Sum: a number, or a type with operator+ and an overload of shuffle_xor (warp.cuh); Sum{} is zero;
//   Sum term(int64_t nonzero) const: called once for each non-zero, so it may also write results;
//   void store(int64_t row, Sum sum) const: called once for each row.

constexpr int kRowThreads = 128;
// A warp adds up a chunk of 256 in 8 rounds.
constexpr int kLog2RowChunk = 8;

// The sums of the pieces of hubs between the two passes, by slot (csr.cuh).
template <typename Sum>
struct HubSums {
    Sum* __restrict__ sums;      // [slots]; only those with a piece are written
    int64_t* __restrict__ rows;  // [slots]: the row whose first piece is here, or -1
    Chunks chunks;
};

// First pass: one warp for each unit.
template <typename Rows>
__global__ void __launch_bounds__(kRowThreads)
    row_sums_kernel(const RowPointers matrix, const Rows rows, const HubSums<typename Rows::Sum> hubs) {
    const int64_t unit = (static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x) / kWarp;
    const int64_t slots = hubs.chunks.slots();
    if (unit >= slots + matrix.rows) return;
    const Piece piece = piece_at(matrix, hubs.chunks, unit);
    const bool first_lane = lane_number() == 0;
    if (unit < slots && first_lane) hubs.rows[unit] = piece.begins ? piece.row : -1;
    if (piece.row < 0) return;
    typename Rows::Sum sum{};
    for (int64_t k = piece.range.begin + lane_number(); k < piece.range.end; k += kWarp) sum = sum + rows.term(k);
    sum = warp_sum(sum);
    if (!first_lane) return;
    if (unit < slots) {
        hubs.sums[unit] = sum;
    } else {
        rows.store(piece.row, sum);
    }
}

// Second pass: one warp for each slot. That of the slot where a hub begins adds up the hub's pieces.
template <typename Rows>
__global__ void __launch_bounds__(kRowThreads)
    hub_sums_kernel(const RowPointers matrix, const Rows rows, const HubSums<typename Rows::Sum> hubs) {
    const int64_t slot = (static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x) / kWarp;
    if (slot >= hubs.chunks.slots()) return;
    const int64_t row = hubs.rows[slot];
    if (row < 0) return;
    const int64_t end_chunk = hubs.chunks.end_of(row_range(matrix, row));
    typename Rows::Sum sum{};
    for (int64_t chunk = slot / 2 + lane_number(); chunk < end_chunk; chunk += kWarp) {
        sum = sum + hubs.sums[chunk == slot / 2 ? slot : 2 * chunk];
    }
    sum = warp_sum(sum);
    if (lane_number() == 0) rows.store(row, sum);
}

// Blocks of kRowThreads that together have a warp for each of `units`.
inline int64_t warp_blocks(int64_t units) { return ceil_div(units, kRowThreads / kWarp); }

// Memory for the pieces of hubs, freed for the stream's later work when it goes out of scope.
template <typename Sum>
class HubMemory {
 public:
    HubMemory(const torch::stable::Tensor& rowptr, int64_t nnz)
        : chunks_(chunks_of(nnz, kLog2RowChunk)),
          sums_(torch::stable::new_empty(rowptr, {chunks_.slots() * ceil_div(sizeof(Sum), sizeof(int64_t))})),
          rows_(torch::stable::new_empty(rowptr, {chunks_.slots()})) {}

    HubSums<Sum> sums() {
        return {reinterpret_cast<Sum*>(sums_.mutable_data_ptr<int64_t>()), rows_.mutable_data_ptr<int64_t>(), chunks_};
    }

 private:
    Chunks chunks_;
    torch::stable::Tensor sums_;
    torch::stable::Tensor rows_;
};

template <typename Rows>
void sum_rows(const Launcher& launch, const RowPointers& matrix, const Rows& rows,
              const HubSums<typename Rows::Sum>& hubs) {
    const int64_t slots = hubs.chunks.slots();
    launch(row_sums_kernel<Rows>, warp_blocks(slots + matrix.rows), kRowThreads, matrix, rows, hubs);
    launch(hub_sums_kernel<Rows>, warp_blocks(slots), kRowThreads, matrix, rows, hubs);
}

}  // namespace seegera::cuda
