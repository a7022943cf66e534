// The rows of A + I without the removed edges, and the entries of D^-1/2 (A + I) D^-1/2 of what stays.
//
// Two passes over the entries, with a running sum over the rows between them: the first counts and weighs what stays of
// each row, the second writes it. Floor: both read the edge number of each entry (8 bytes) and its mark (1 byte, at a
// address that is random for half of the entries), the second also column and weight, and it writes column and value of
// what stays.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "common/csr.cuh"
#include "common/launch.cuh"
#include "common/row_sums.cuh"
#include "common/scan.cuh"
#include "common/warp.cuh"

namespace seegera::cuda {
namespace {

using torch::stable::Tensor;

template <typename T>
struct Weighed {
    T degree;
    int64_t count;
};

template <typename T>
__device__ __forceinline__ Weighed<T> operator+(const Weighed<T>& a, const Weighed<T>& b) {
    return {a.degree + b.degree, a.count + b.count};
}

template <typename T>
__device__ __forceinline__ Weighed<T> shuffle_xor(const Weighed<T>& value, int distance) {
    return {__shfl_xor_sync(kAllLanes, value.degree, distance), __shfl_xor_sync(kAllLanes, value.count, distance)};
}

// The entries of A + I that stay. Sums of row_sums.cuh: their number, and the degree.
template <typename T>
struct Staying {
    using Sum = Weighed<T>;
    const int64_t* __restrict__ edge;  // -1 for a self-loop
    const bool* __restrict__ removed;  // one mark per edge
    int64_t edges;
    const T* __restrict__ weight;
    int64_t* __restrict__ counts;
    T* __restrict__ scale;  // degree^-1/2

    // An entry of an edge that is not there stays too: a GPU can't refuse it without being waited for.
    __device__ __forceinline__ bool stays(int64_t k) const {
        const int64_t number = edge[k];
        return number < 0 || number >= edges || !removed[number];
    }
    __device__ __forceinline__ Sum term(int64_t k) const {
        const bool here = stays(k);
        return {here ? weight[k] : T(0), here};
    }
    // A row has its self-loop at least.
    __device__ __forceinline__ void store(int64_t row, const Sum& sum) const {
        counts[row] = sum.count;
        scale[row] = 1 / sqrt(sum.degree);
    }
};

template <typename T>
struct Masked {
    int64_t* __restrict__ rowptr;
    int64_t* __restrict__ col;
    T* __restrict__ values;
    int64_t left;  // the size of col and values
};

// One warp for each unit of csr.cuh; runs after the running sum of the counts.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    write_kernel(const RowPointers matrix, const int64_t* __restrict__ col, const Staying<T> staying,
                 const HubSums<Weighed<T>> hubs, const Masked<T> out) {
    const int64_t unit = (static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x) / kWarp;
    if (unit == 0 && lane_number() == 0) out.rowptr[0] = 0;
    if (unit >= hubs.chunks.slots() + matrix.rows) return;
    const Piece piece = piece_at(matrix, hubs.chunks, unit);
    if (piece.row < 0) return;
    int64_t at = piece.row > 0 ? out.rowptr[piece.row] : 0;
    if (!piece.begins) {
        // What stays of the pieces before this one.
        const int64_t first = hubs.chunks.first_slot(matrix.rowptr[piece.row]);
        int64_t count = 0;
        for (int64_t chunk = first / 2 + lane_number(); chunk < unit / 2; chunk += kWarp) {
            count += hubs.sums[chunk == first / 2 ? first : 2 * chunk].count;
        }
        at += warp_sum(count);
    }
    const T row_scale = staying.scale[piece.row];
    for (int64_t first = piece.range.begin; first < piece.range.end; first += kWarp) {
        const int64_t k = first + lane_number();
        const bool here = k < piece.range.end && staying.stays(k);
        const unsigned int ballot = __ballot_sync(kAllLanes, here);
        const int64_t to = at + count_below(ballot);
        // Nothing is written past the end, if wrong numbers of edges make more stay.
        if (here && to < out.left) {
            out.col[to] = col[k];
            // Symmetric bit for bit: the product of the two scales does not depend on their order.
            out.values[to] = staying.weight[k] * (row_scale * staying.scale[col[k]]);
        }
        at += __popc(ballot);
    }
}

template <typename T>
void mask(const Tensor& rowptr, const Tensor& col, const Tensor& weight, const Tensor& edge, const Tensor& removed,
          Tensor& new_rowptr, Tensor& new_col, Tensor& values) {
    const Launcher launch(rowptr);
    const RowPointers matrix = {rowptr.const_data_ptr<int64_t>(), rowptr.numel() - 1, col.numel()};
    Tensor scale = torch::stable::new_empty(weight, {matrix.rows});
    HubMemory<Weighed<T>> memory(rowptr, matrix.nnz);
    const HubSums<Weighed<T>> hubs = memory.sums();
    const Masked<T> out = {new_rowptr.mutable_data_ptr<int64_t>(), new_col.mutable_data_ptr<int64_t>(),
                           values.mutable_data_ptr<T>(), values.numel()};
    const Staying<T> staying = {edge.const_data_ptr<int64_t>(),
                                removed.const_data_ptr<bool>(),
                                removed.numel(),
                                weight.const_data_ptr<T>(),
                                out.rowptr + 1,
                                scale.mutable_data_ptr<T>()};
    sum_rows(launch, matrix, staying, hubs);
    running_sums(launch, rowptr, staying.counts, matrix.rows);
    // Without rows one block runs, which writes the only row pointer.
    const int64_t units = std::max<int64_t>(1, hubs.chunks.slots() + matrix.rows);
    launch(write_kernel<T>, warp_blocks(units), kRowThreads, matrix, col.const_data_ptr<int64_t>(), staying, hubs, out);
}

// rowptr, col, weight: A + I, n x n. edge [nnz]; removed: bool [edges], num_removed of them set. Returns rowptr, col
// and values of what stays.
std::tuple<Tensor, Tensor, Tensor> mask_edges(const Tensor& rowptr, const Tensor& col, const Tensor& weight,
                                              const Tensor& edge, const Tensor& removed, int64_t num_removed) {
    const int64_t left = col.numel() - 2 * num_removed;
    Tensor new_rowptr = torch::stable::new_empty(rowptr, {rowptr.numel()});
    Tensor new_col = torch::stable::new_empty(col, {left});
    Tensor values = torch::stable::new_empty(weight, {left});
    if (weight.scalar_type() == torch::headeronly::ScalarType::Double) {
        mask<double>(rowptr, col, weight, edge, removed, new_rowptr, new_col, values);
    } else {
        mask<float>(rowptr, col, weight, edge, removed, new_rowptr, new_col, values);
    }
    return {new_rowptr, new_col, values};
}

}  // namespace
}  // namespace seegera::cuda

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CUDA, m) { m.impl("mask_edges", TORCH_BOX(&seegera::cuda::mask_edges)); }
