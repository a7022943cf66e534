// The rows of A + I without the removed edges, and the entries of D^-1/2 (A + I) D^-1/2 of what stays.
//
// Two passes over the entries: the first counts and weighs what stays of each row, the second writes it. Floor: both
// read the edge number of each entry (8 bytes) and its mark (1 byte, at an address that is random for half of the
// entries), the second also column and weight, and it writes column and value of what stays.
#include <cstdint>

#include "common/isa.h"

namespace seegera {

template <typename T>
struct MaskEdges {
    const int64_t* rowptr;
    const int64_t* col;
    const T* weight;
    const int64_t* edge;     // -1 for a self-loop
    const uint8_t* removed;  // one mark per edge
    int64_t edges;
    T* scale;  // degree^-1/2 of each row
    int64_t* new_rowptr;
    int64_t* new_col;
    T* values;
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/vector.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
inline bool stays(const MaskEdges<T>& p, int64_t k) {
    return p.edge[k] < 0 || p.removed[p.edge[k]] == 0;
}

// The number of entries that stay, for row i into new_rowptr[i + 1]. A row has its self-loop at least. False where an
// entry is of no edge: then nothing may be written.
template <typename T>
bool count_rows(const MaskEdges<T>& p, int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        int64_t count = 0;
        T degree = 0;
        for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; ++k) {
            if (p.edge[k] < -1 || p.edge[k] >= p.edges) {
                return false;
            }
            const bool here = stays(p, k);
            count += here;
            degree += here ? p.weight[k] : T(0);
        }
        p.new_rowptr[row + 1] = count;
        p.scale[row] = 1 / sqrt(degree);
    }
    return true;
}

template <typename T>
void write_rows(const MaskEdges<T>& p, int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        int64_t at = p.new_rowptr[row];
        for (int64_t k = p.rowptr[row]; k < p.rowptr[row + 1]; ++k) {
            if (stays(p, k)) {
                p.new_col[at] = p.col[k];
                // Symmetric bit for bit: the product of the two scales does not depend on their order.
                p.values[at] = p.weight[k] * (p.scale[row] * p.scale[p.col[k]]);
                ++at;
            }
        }
    }
}

template bool count_rows(const MaskEdges<float>&, int64_t, int64_t);
template bool count_rows(const MaskEdges<double>&, int64_t, int64_t);
template void write_rows(const MaskEdges<float>&, int64_t, int64_t);
template void write_rows(const MaskEdges<double>&, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <atomic>
#include <memory>
#include <tuple>

#include "common/csr.h"
#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> bool count_rows(const MaskEdges<T>&, int64_t, int64_t);
                     template <typename T> void write_rows(const MaskEdges<T>&, int64_t, int64_t);)

namespace {

using torch::stable::Tensor;

// Entries of a task.
constexpr int64_t kTaskCost = int64_t{1} << 15;

template <typename T>
void mask(const Tensor& rowptr, const Tensor& col, const Tensor& weight, const Tensor& edge, const Tensor& removed,
          Tensor& new_rowptr, Tensor& new_col, Tensor& values) {
    const int64_t rows = rowptr.numel() - 1;
    const std::unique_ptr<T[]> scale(new T[rows]);
    MaskEdges<T> p;
    p.rowptr = rowptr.const_data_ptr<int64_t>();
    p.col = col.const_data_ptr<int64_t>();
    p.weight = weight.const_data_ptr<T>();
    p.edge = edge.const_data_ptr<int64_t>();
    p.removed = reinterpret_cast<const uint8_t*>(removed.const_data_ptr<bool>());
    p.edges = removed.numel();
    p.scale = scale.get();
    p.new_rowptr = new_rowptr.mutable_data_ptr<int64_t>();
    p.new_col = new_col.mutable_data_ptr<int64_t>();
    p.values = values.mutable_data_ptr<T>();
    const auto tasks = partition_rows(p.rowptr, rows, 1, 1, 1, kTaskCost);
    const auto count = SEEGERA_CHOOSE(count_rows<T>);
    const auto write = SEEGERA_CHOOSE(write_rows<T>);
    const auto for_each_row_range = [&](const auto& run) {
        for_each_task(static_cast<int64_t>(tasks.size()),
                      [&](int64_t i) { run(tasks[i].row_begin, tasks[i].row_end); });
    };
    std::atomic<bool> known{true};
    for_each_row_range([&](int64_t begin, int64_t end) {
        if (!count(p, begin, end)) {
            known = false;
        }
    });
    STD_TORCH_CHECK(known, "edge: got the number of an edge that is not there, want -1 to ", p.edges - 1);
    p.new_rowptr[0] = 0;
    for (int64_t row = 0; row < rows; ++row) {
        p.new_rowptr[row + 1] += p.new_rowptr[row];
    }
    STD_TORCH_CHECK(p.new_rowptr[rows] == new_col.numel(), "mask_edges: ", p.new_rowptr[rows], " entries stay, want ",
                    new_col.numel());
    for_each_row_range([&](int64_t begin, int64_t end) { write(p, begin, end); });
}

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
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("mask_edges", TORCH_BOX(&seegera::mask_edges)); }

#endif
