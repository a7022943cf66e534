// matrix @ dense for a CSR matrix: out[r, :] = sum over the non-zeros e of row r of values[e] * dense[col[e], :].
//
// One warp adds one row over one tile of columns. Its lanes are kLanes vectors of N columns wide; where that is less
// than a warp, the rest of the lanes take other non-zeros of the row, and a butterfly of shuffles adds them up. Tiles
// of columns are the slow index, so that the slice of `dense` that is gathered from at one time is narrow enough for
// the cache. Hub rows: see common/csr.cuh. Every sum has a fixed order: equal inputs give equal bits.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>

#include "common/csr.cuh"
#include "common/launch.cuh"
#include "common/vector.cuh"

namespace seegera::cuda {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int kThreads = 128;
constexpr unsigned int kAllLanes = 0xffffffffu;

template <typename T>
struct Dense {
    const T* __restrict__ data;  // [cols, width], unit stride along a row
    int64_t stride;              // from one row to the next
    int64_t width;
};

// What the hub rows leave between the two passes, by place (common/csr.cuh).
template <typename T>
struct Partial {
    T* __restrict__ sums;        // [2 * chunks, width]; only places with a hub are written
    int64_t* __restrict__ rows;  // [2 * chunks]: the row whose first non-zero is summed here, or -1
    int64_t chunks;
};

// Adds the products of the non-zeros in `range`, kChunk of them at most, for the N columns from `column` on. Every lane
// of the warp has to come here, with the same range; the sums are complete in the lanes below kLanes. Nothing is read
// from `dense` for a lane beyond the width or the range: what lies there may be infinite.
template <int N, int kLanes, typename T>
__device__ __forceinline__ Vector<T, N> sum_products(const Csr<T>& matrix, const Range& range, const Dense<T>& dense,
                                                     int64_t column) {
    constexpr int kSlices = kWarp / kLanes;              // non-zeros that the warp takes at a time
    constexpr int kAhead = N * sizeof(T) >= 16 ? 4 : 8;  // loads under way in a lane, where there are that many
    constexpr int kUnroll = kLanes < kAhead ? kLanes : kAhead;
    const int lane = threadIdx.x % kWarp;
    const int slice = lane / kLanes;
    const bool in_width = column < dense.width;
    const T* __restrict__ from = dense.data + column;
    Vector<T, N> sum = zeros<T, N>();
    const int64_t* __restrict__ cols = matrix.col + range.begin;
    const T* __restrict__ values = matrix.values + range.begin;
    const int length = static_cast<int>(range.end - range.begin);
    for (int first = 0; first < length; first += kWarp) {
        const int count = length - first < kWarp ? length - first : kWarp;
        const int64_t my_offset = lane < count ? cols[first + lane] * dense.stride : 0;
        const T my_value = lane < count ? values[first + lane] : T(0);
        for (int step = 0; step * kSlices < count; step += kUnroll) {
            Vector<T, N> terms[kUnroll];
            T factors[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const int source = (step + u) * kSlices + slice;
                const int64_t offset = __shfl_sync(kAllLanes, my_offset, source);
                factors[u] = __shfl_sync(kAllLanes, my_value, source);
                terms[u] = in_width && source < count ? load<N>(from + offset) : zeros<T, N>();
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) multiply_add(sum, factors[u], terms[u]);
        }
    }
#pragma unroll
    for (int distance = kWarp / 2; distance >= kLanes; distance /= 2) {
        Vector<T, N> other;
#pragma unroll
        for (int i = 0; i < N; ++i) other.lane[i] = __shfl_xor_sync(kAllLanes, sum.lane[i], distance);
        add(sum, other);
    }
    return sum;
}

// First pass. Warps, from the first on: for each tile of columns the 2 * chunks places of partial sums, then the rows.
// The places come first: a piece of a hub takes longer than most rows.
template <typename T, int N, int kLanes>
__global__ void __launch_bounds__(kThreads)
    product_kernel(const Csr<T> matrix, const Dense<T> dense, T* __restrict__ out, const Partial<T> partial,
                   const int64_t tiles) {
    const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
    const int lane = threadIdx.x % kWarp;
    const int64_t places = 2 * partial.chunks;
    const int64_t units = places + matrix.rows;
    const int64_t tile = warp / units;
    const int64_t unit = warp % units;
    if (tile >= tiles) return;
    const int64_t column = (tile * kLanes + lane % kLanes) * N;

    Range range;
    T* target;
    if (unit < places) {
        const Segment segment = hub_segment(matrix, unit / 2, static_cast<int>(unit % 2));
        if (tile == 0 && lane == 0) partial.rows[unit] = segment.begins ? segment.row : -1;
        if (segment.range.begin == segment.range.end) return;
        range = segment.range;
        target = partial.sums + unit * dense.width;
    } else {
        const int64_t row = unit - places;
        range = row_range(matrix, row);
        if (is_hub(range)) return;
        target = out + row * dense.width;
    }
    const Vector<T, N> sum = sum_products<N, kLanes>(matrix, range, dense, column);
    if (lane < kLanes && column < dense.width) store(target + column, sum);
}

// Second pass: one thread for N columns of each place. The place where a hub begins adds up the hub's partial sums: its
// own, then those on side 0 of the later chunks.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    hub_kernel(const Csr<T> matrix, T* __restrict__ out, const Partial<T> partial, const int64_t width) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t vectors = width / N;
    const int64_t place = thread / vectors;
    const int64_t column = thread % vectors * N;
    if (place >= 2 * partial.chunks) return;
    const int64_t row = partial.rows[place];
    if (row < 0) return;
    const int64_t end_chunk = (matrix.rowptr[row + 1] - 1) / kChunk + 1;
    Vector<T, N> sum = load<N>(partial.sums + place * width + column);
#pragma unroll 4
    for (int64_t chunk = place / 2 + 1; chunk < end_chunk; ++chunk) {
        add(sum, load<N>(partial.sums + 2 * chunk * width + column));
    }
    store(out + row * width + column, sum);
}

template <typename T, int N, int kLanes>
void launch_tiles(const Csr<T>& matrix, const Dense<T>& dense, T* out, const Partial<T>& partial, cudaStream_t stream) {
    const int64_t tiles = ceil_div(dense.width, N * kLanes);
    const int64_t warps = (2 * partial.chunks + matrix.rows) * tiles;
    product_kernel<T, N, kLanes>
        <<<num_blocks(warps * kWarp, kThreads), kThreads, 0, stream>>>(matrix, dense, out, partial, tiles);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
    if (partial.chunks == 0) return;
    const int64_t threads = 2 * partial.chunks * (dense.width / N);
    hub_kernel<T, N><<<num_blocks(threads, kThreads), kThreads, 0, stream>>>(matrix, out, partial, dense.width);
    STD_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T, int N>
void launch_vectors(const Csr<T>& matrix, const Dense<T>& dense, T* out, const Partial<T>& partial,
                    cudaStream_t stream) {
    const int64_t vectors = dense.width / N;
    if (vectors == 1) {
        launch_tiles<T, N, 1>(matrix, dense, out, partial, stream);
    } else if (vectors <= 4) {
        launch_tiles<T, N, 4>(matrix, dense, out, partial, stream);
    } else if (vectors <= 16) {
        launch_tiles<T, N, 16>(matrix, dense, out, partial, stream);
    } else {
        launch_tiles<T, N, 32>(matrix, dense, out, partial, stream);
    }
}

template <typename T>
void multiply(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor& dense, Tensor& out) {
    constexpr int kVector = 16 / sizeof(T);
    const Launch launch(dense);
    const Csr<T> matrix = {rowptr.const_data_ptr<int64_t>(), col.const_data_ptr<int64_t>(), values.const_data_ptr<T>(),
                           rowptr.numel() - 1, col.numel()};
    const Dense<T> source = {dense.const_data_ptr<T>(), dense.stride(0), dense.size(1)};
    const int64_t chunks = num_chunks(matrix.nnz);
    Tensor sums = torch::stable::new_empty(out, {2 * chunks, source.width});
    Tensor rows = torch::stable::new_empty(rowptr, {2 * chunks});
    const Partial<T> partial = {sums.mutable_data_ptr<T>(), rows.mutable_data_ptr<int64_t>(), chunks};
    T* target = out.mutable_data_ptr<T>();
    const bool aligned = source.width % kVector == 0 && source.stride % kVector == 0 &&
                         reinterpret_cast<uintptr_t>(source.data) % 16 == 0;
    if (aligned) {
        launch_vectors<T, kVector>(matrix, source, target, partial, launch.stream());
    } else {
        launch_vectors<T, 1>(matrix, source, target, partial, launch.stream());
    }
}

// matrix: rows x cols in CSR; its transpose is for the backward pass, which calls this operator with the two exchanged.
// dense: [cols, width], float32 or float64 like the values, any strides. Returns [rows, width], contiguous.
Tensor sparse_matmul(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor& /*rowptr_t*/,
                     const Tensor& /*col_t*/, const Tensor& /*values_t*/, const Tensor& dense) {
    const int64_t rows = rowptr.numel() - 1;
    const int64_t width = dense.size(1);
    Tensor out = torch::stable::new_empty(dense, {rows, width});
    if (rows == 0 || width == 0) return out;
    const Tensor source = width > 1 && dense.stride(1) != 1 ? torch::stable::contiguous(dense) : dense;
    if (dense.scalar_type() == ScalarType::Double) {
        multiply<double>(rowptr, col, values, source, out);
    } else {
        multiply<float>(rowptr, col, values, source, out);
    }
    return out;
}

}  // namespace
}  // namespace seegera::cuda

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CUDA, m) { m.impl("sparse_matmul", TORCH_BOX(&seegera::cuda::sparse_matmul)); }
