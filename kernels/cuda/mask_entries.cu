// The values of X with the removed entries at zero, of its transpose, and of both with their rows divided by the sum of
// their absolute values (a zero row stays zero), each in the order of X and in the order of the transpose.
//
// Four passes: over X and over the transpose for the values and the sums, and over each again for the quotients. Floor:
// values and marks of X read, two results written; the transpose's order (8 bytes) and one gathered value read, one
// result written; then columns (8 bytes) and values of either read, and two results written for each.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <tuple>

#include "common/csr.cuh"
#include "common/launch.cuh"
#include "common/row_sums.cuh"
#include "common/warp.cuh"

namespace seegera::cuda {
namespace {

using torch::stable::Tensor;

template <typename T>
__device__ __forceinline__ T inverse_or_zero(T norm) {
    return norm > 0 ? 1 / norm : T(0);
}

// Sums of row_sums.cuh over X: its absolute values, as the values are written.
template <typename T>
struct MaskedRows {
    using Sum = T;
    const T* __restrict__ source;
    const bool* __restrict__ removed;
    T* __restrict__ values;
    T* __restrict__ scale;  // 1 / sum

    __device__ __forceinline__ T term(int64_t k) const {
        const T value = removed[k] ? T(0) : source[k];
        values[k] = value;
        return fabs(value);
    }
    __device__ __forceinline__ void store(int64_t row, T sum) const { scale[row] = inverse_or_zero(sum); }
};

// The same over the transpose, after X.
template <typename T>
struct MaskedColumns {
    using Sum = T;
    const int64_t* __restrict__ order;  // entry k of the transpose is entry order[k] of X
    const T* __restrict__ values;
    T* __restrict__ values_t;
    T* __restrict__ scale;

    __device__ __forceinline__ T term(int64_t k) const {
        const T value = values[order[k]];
        values_t[k] = value;
        return fabs(value);
    }
    __device__ __forceinline__ void store(int64_t row, T sum) const { scale[row] = inverse_or_zero(sum); }
};

// The entries of a matrix times the scales of their rows, and times those of their columns.
template <typename T>
struct Scaled {
    const int64_t* __restrict__ col;
    const T* __restrict__ values;
    const T* __restrict__ row_scale;
    const T* __restrict__ column_scale;
    T* __restrict__ by_row;
    T* __restrict__ by_column;
};

// One warp for each unit of csr.cuh.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    scale_kernel(const RowPointers matrix, const Chunks chunks, const Scaled<T> scaled) {
    const int64_t unit = (static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x) / kWarp;
    if (unit >= chunks.slots() + matrix.rows) return;
    const Piece piece = piece_at(matrix, chunks, unit);
    if (piece.row < 0) return;
    const T row_scale = scaled.row_scale[piece.row];
    for (int64_t k = piece.range.begin + lane_number(); k < piece.range.end; k += kWarp) {
        const T value = scaled.values[k];
        scaled.by_row[k] = value * row_scale;
        scaled.by_column[k] = value * scaled.column_scale[scaled.col[k]];
    }
}

template <typename T>
void mask(const Tensor& rowptr, const Tensor& col, const Tensor& source, const Tensor& rowptr_t, const Tensor& col_t,
          const Tensor& order, const Tensor& removed, Tensor (&out)[6]) {
    const Launcher launch(rowptr);
    const RowPointers rows = {rowptr.const_data_ptr<int64_t>(), rowptr.numel() - 1, col.numel()};
    const RowPointers columns = {rowptr_t.const_data_ptr<int64_t>(), rowptr_t.numel() - 1, col.numel()};
    T* results[6];
    for (int i = 0; i < 6; ++i) results[i] = out[i].mutable_data_ptr<T>();
    auto [values, values_t, by_row, by_row_t, by_column, by_column_t] = results;
    Tensor scales = torch::stable::new_empty(source, {rows.rows + columns.rows});
    T* const row_scale = scales.mutable_data_ptr<T>();
    T* const column_scale = row_scale + rows.rows;
    HubMemory<T> memory(rowptr, rows.nnz);
    const HubSums<T> hubs = memory.sums();
    sum_rows(launch, rows, MaskedRows<T>{source.const_data_ptr<T>(), removed.const_data_ptr<bool>(), values, row_scale},
             hubs);
    sum_rows(launch, columns, MaskedColumns<T>{order.const_data_ptr<int64_t>(), values, values_t, column_scale}, hubs);
    const auto scale = [&](const RowPointers& matrix, const Scaled<T>& scaled) {
        const int64_t units = hubs.chunks.slots() + matrix.rows;
        launch(scale_kernel<T>, warp_blocks(units), kRowThreads, matrix, hubs.chunks, scaled);
    };
    scale(rows, {col.const_data_ptr<int64_t>(), values, row_scale, column_scale, by_row, by_column});
    // A row of the transpose is a column of X.
    scale(columns, {col_t.const_data_ptr<int64_t>(), values_t, column_scale, row_scale, by_column_t, by_row_t});
}

// X by rows, and its transpose; removed: bool [nnz]. Returns, each [nnz] and followed by its transpose: the masked
// values, by rows, by columns.
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
}  // namespace seegera::cuda

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CUDA, m) { m.impl("mask_entries", TORCH_BOX(&seegera::cuda::mask_entries)); }
