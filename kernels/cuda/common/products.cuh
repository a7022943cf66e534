#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>

#include "csr.cuh"
#include "launch.cuh"
#include "vector.cuh"
#include "warp.cuh"

namespace seegera::cuda {

// Sums of lines of a dense matrix over the rows of a CSR matrix: out[r * copies + c, :] = sum over the terms t of row r
// of factor(t) * dense[line(t), :].
//
// One warp adds one output over one tile of columns. Its lanes are kLanes vectors of N columns wide; where that is less
// than a warp, the rest of the lanes take other terms, and a butterfly of shuffles adds them up. Tiles of columns are
// the slow index, so that the slice of `dense` that is gathered from at one time is narrow enough for the cache. Hub
// rows: see csr.cuh. Every sum has a fixed order: equal inputs give equal bits.
//
// `Terms` says what the terms are:
//   int64_t copies() const: outputs of a row;
//   int64_t repeats() const: terms of a non-zero, less than 2^31 / 2^kLog2LongestChunk of them; non-zero k has the
//     terms k * repeats to (k + 1) * repeats - 1;
//   Term<T> term(int64_t row, int64_t copy, int64_t number) const.

template <typename T>
struct Term {
    int64_t line;
    T factor;
    bool present;  // false: the term adds nothing, and its line is not read
};

template <typename T>
struct Dense {
    const T* __restrict__ data;  // [lines, width], unit stride along a line
    int64_t stride;              // from one line to the next
    int64_t width;
};

// The partial sums of hubs between the two passes, by slot (csr.cuh).
template <typename T>
struct Partial {
    T* __restrict__ sums;        // [slots, copies, width]; only those with a piece are written
    int64_t* __restrict__ rows;  // [slots]: the row whose first piece is here, or -1
    Chunks chunks;
};

constexpr int kProductThreads = 128;
// Up to 64 registers a thread: left alone, the compiler spills some to have fewer.
constexpr int kProductBlocks = 8;

// A warp waits for memory about as often as it has terms in flight, so a small product takes as long as its longest
// piece. Chunks are as short as they can be without giving each warp of a large card more than one; between these
// bounds, since short ones cost more partial sums.
constexpr int64_t kWarpsOfCard = 4096;
constexpr int kLog2ShortestChunk = 5;
constexpr int kLog2LongestChunk = 8;

// Partial sums that a thread of the second pass loads at a time: it waits for memory once for each such load.
constexpr int kSumsAhead = 8;

// `passes`: how often a warp goes over the terms of one non-zero.
inline Chunks product_chunks(int64_t nnz, double passes) {
    int log2_size = kLog2ShortestChunk;
    while (log2_size < kLog2LongestChunk && nnz * passes > static_cast<double>(kWarpsOfCard << log2_size)) ++log2_size;
    return chunks_of(nnz, log2_size);
}

// The sum over one piece, for the N columns from `column` on. Every lane of the warp has to come here, with the same
// piece; the sums are complete in the lanes below kLanes. Nothing is read from `dense` for a lane beyond the width or
// for a term that is not present: what lies there may be infinite.
template <int N, int kLanes, typename T, typename Terms>
__device__ __forceinline__ Vector<T, N> sum_terms(const Terms& terms, const Piece& piece, int64_t copy,
                                                  const Dense<T>& dense, int64_t column) {
    constexpr int kSlices = kWarp / kLanes;            // terms that the warp takes at a time
    constexpr int kAhead = N * sizeof(T) > 4 ? 4 : 8;  // loads under way in a lane, where there are that many
    constexpr int kUnroll = kLanes < kAhead ? kLanes : kAhead;
    const int lane = lane_number();
    const int slice = lane / kLanes;
    const bool in_width = column < dense.width;
    const T* __restrict__ from = dense.data + column;
    Vector<T, N> sum = zeros<T, N>();
    const int64_t begin = piece.range.begin * terms.repeats();
    const int length = static_cast<int>((piece.range.end - piece.range.begin) * terms.repeats());
    for (int first = 0; first < length; first += kWarp) {
        const int count = length - first < kWarp ? length - first : kWarp;
        Term<T> mine = {0, T(0), false};
        if (lane < count) mine = terms.term(piece.row, copy, begin + first + lane);
        const int64_t my_offset = mine.line * dense.stride;
        const unsigned int present = __ballot_sync(kAllLanes, mine.present);
        for (int step = 0; step * kSlices < count; step += kUnroll) {
            Vector<T, N> lines[kUnroll];
            T factors[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const int source = (step + u) * kSlices + slice;
                const int64_t offset = __shfl_sync(kAllLanes, my_offset, source);
                factors[u] = __shfl_sync(kAllLanes, mine.factor, source);
                lines[u] = in_width && (present >> source & 1) ? load<N>(from + offset) : zeros<T, N>();
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) multiply_add(sum, factors[u], lines[u]);
        }
    }
#pragma unroll
    for (int distance = kWarp / 2; distance >= kLanes; distance /= 2) {
        Vector<T, N> other;
#pragma unroll
        for (int i = 0; i < N; ++i) other.lane[i] = shuffle_xor(sum.lane[i], distance);
        add(sum, other);
    }
    return sum;
}

// First pass. Blocks, from the first on: for each tile of columns and each copy the units of csr.cuh, a warp each.
template <int N, int kLanes, typename T, typename Terms>
__global__ void __launch_bounds__(kProductThreads, kProductBlocks)
    product_kernel(const RowPointers matrix, const Terms terms, const Dense<T> dense, T* __restrict__ out,
                   const Partial<T> partial, const unsigned int blocks_of_units) {
    const unsigned int copies = static_cast<unsigned int>(terms.copies());
    const unsigned int slice = blockIdx.x / blocks_of_units;
    const unsigned int copy = slice % copies;
    const unsigned int tile = slice / copies;
    const int64_t unit =
        static_cast<int64_t>(blockIdx.x % blocks_of_units) * (kProductThreads / kWarp) + threadIdx.x / kWarp;
    const int lane = lane_number();
    const int64_t slots = partial.chunks.slots();
    if (unit >= slots + matrix.rows) return;
    const int64_t column = (static_cast<int64_t>(tile) * kLanes + lane % kLanes) * N;
    const Piece piece = piece_at(matrix, partial.chunks, unit);
    if (unit < slots && slice == 0 && lane == 0) partial.rows[unit] = piece.begins ? piece.row : -1;
    if (piece.row < 0) return;
    T* const target = unit < slots ? partial.sums + (unit * copies + copy) * dense.width
                                   : out + (piece.row * copies + copy) * dense.width;
    const Vector<T, N> sum = sum_terms<N, kLanes>(terms, piece, copy, dense, column);
    if (lane < kLanes && column < dense.width) store(target + column, sum);
}

// Second pass: one thread for N columns of each copy at each slot. The slot where a hub begins adds up the hub's
// partial sums: that in this slot, then those on side 0 of the later chunks.
template <int N, typename T>
__global__ void __launch_bounds__(kProductThreads)
    hub_kernel(const RowPointers matrix, T* __restrict__ out, const Partial<T> partial, const int64_t copies,
               const int64_t width) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kProductThreads + threadIdx.x;
    const int64_t vectors = width / N;
    const int64_t output = thread / vectors;
    const int64_t column = thread % vectors * N;
    const int64_t slot = output / copies;
    const int64_t copy = output % copies;
    if (slot >= partial.chunks.slots()) return;
    const int64_t row = partial.rows[slot];
    if (row < 0) return;
    const int64_t end_chunk = partial.chunks.end_of(row_range(matrix, row));
    Vector<T, N> sum = load<N>(partial.sums + output * width + column);
    for (int64_t chunk = slot / 2 + 1; chunk < end_chunk; chunk += kSumsAhead) {
        Vector<T, N> later[kSumsAhead];
#pragma unroll
        for (int u = 0; u < kSumsAhead; ++u) {
            // Past the end the last one is loaded again: a conditional load would not overlap with the others.
            const int64_t there = chunk + u < end_chunk ? chunk + u : end_chunk - 1;
            later[u] = load<N>(partial.sums + (2 * there * copies + copy) * width + column);
        }
#pragma unroll
        for (int u = 0; u < kSumsAhead; ++u) {
            if (chunk + u < end_chunk) add(sum, later[u]);
        }
    }
    store(out + (row * copies + copy) * width + column, sum);
}

template <int N, int kLanes, typename T, typename Terms>
void launch_tiles(const Launcher& launch, const RowPointers& matrix, const Terms& terms, const Dense<T>& dense, T* out,
                  const Partial<T>& partial) {
    const int64_t slices = ceil_div(dense.width, N * kLanes) * terms.copies();
    const int64_t blocks = ceil_div(partial.chunks.slots() + matrix.rows, kProductThreads / kWarp);
    launch(product_kernel<N, kLanes, T, Terms>, slices * blocks, kProductThreads, matrix, terms, dense, out, partial,
           static_cast<unsigned int>(blocks));
    const int64_t threads = partial.chunks.slots() * terms.copies() * (dense.width / N);
    launch(hub_kernel<N, T>, ceil_div(threads, kProductThreads), kProductThreads, matrix, out, partial, terms.copies(),
           dense.width);
}

template <int N, typename T, typename Terms>
void launch_vectors(const Launcher& launch, const RowPointers& matrix, const Terms& terms, const Dense<T>& dense,
                    T* out, const Partial<T>& partial) {
    const int64_t vectors = dense.width / N;
    if (vectors == 1) {
        launch_tiles<N, 1>(launch, matrix, terms, dense, out, partial);
    } else if (vectors <= 4) {
        launch_tiles<N, 4>(launch, matrix, terms, dense, out, partial);
    } else if (vectors <= 16) {
        launch_tiles<N, 16>(launch, matrix, terms, dense, out, partial);
    } else {
        launch_tiles<N, 32>(launch, matrix, terms, dense, out, partial);
    }
}

// out: [rows * copies, width], contiguous and aligned to 16 bytes. `like` is any int64 tensor on the device.
template <typename T, typename Terms>
void multiply_rows(const Launcher& launch, const torch::stable::Tensor& like, const RowPointers& matrix,
                   const Terms& terms, const Dense<T>& dense, torch::stable::Tensor& out) {
    if (out.numel() == 0) return;
    constexpr int kVector = 16 / sizeof(T);
    const bool aligned =
        dense.width % kVector == 0 && dense.stride % kVector == 0 && reinterpret_cast<uintptr_t>(dense.data) % 16 == 0;
    const double vectors = static_cast<double>(dense.width) / (aligned ? kVector : 1);
    const Chunks chunks = product_chunks(matrix.nnz, vectors / kWarp * terms.copies() * terms.repeats());
    torch::stable::Tensor sums = torch::stable::new_empty(out, {chunks.slots(), terms.copies(), dense.width});
    torch::stable::Tensor rows = torch::stable::new_empty(like, {chunks.slots()});
    const Partial<T> partial = {sums.mutable_data_ptr<T>(), rows.mutable_data_ptr<int64_t>(), chunks};
    T* target = out.mutable_data_ptr<T>();
    if (aligned) {
        launch_vectors<kVector>(launch, matrix, terms, dense, target, partial);
    } else {
        launch_vectors<1>(launch, matrix, terms, dense, target, partial);
    }
}

// The terms of an ordinary product: one for each non-zero, its value times the line of its column.
template <typename T>
struct Entries {
    const int64_t* __restrict__ col;  // [nnz]
    const T* __restrict__ values;     // [nnz]

    __device__ __forceinline__ Term<T> term(int64_t, int64_t, int64_t k) const { return {col[k], values[k], true}; }
    __host__ __device__ static constexpr int64_t copies() { return 1; }
    __host__ __device__ static constexpr int64_t repeats() { return 1; }
};

// A CSR matrix as operators get it.
struct CsrTensors {
    const torch::stable::Tensor& rowptr;
    const torch::stable::Tensor& col;
    const torch::stable::Tensor& values;

    RowPointers rows() const { return {rowptr.const_data_ptr<int64_t>(), rowptr.numel() - 1, col.numel()}; }
    template <typename T>
    Entries<T> entries() const {
        return {col.const_data_ptr<int64_t>(), values.const_data_ptr<T>()};
    }
};

// A new tensor [rows, width] = matrix @ dense.
template <typename T>
torch::stable::Tensor multiply(const Launcher& launch, const CsrTensors& matrix, const Dense<T>& dense) {
    const RowPointers rows = matrix.rows();
    torch::stable::Tensor out = torch::stable::new_empty(matrix.values, {rows.rows, dense.width});
    multiply_rows(launch, matrix.rowptr, rows, matrix.entries<T>(), dense, out);
    return out;
}

}  // namespace seegera::cuda
