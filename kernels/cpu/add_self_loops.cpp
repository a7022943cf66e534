// A + I of a symmetric matrix without a diagonal, the number of the edge that each of its entries belongs to, and the
// edges.
//
// An edge i < j is numbered in the order of its entry above the diagonal. The entries of column i below the diagonal
// are met in the order of their rows, which is that of row i above the diagonal: so a counter for each node gives them
// their numbers. This pass alone is not shared among threads. Floor: column and value of each entry are read, and
// column, value, edge number and edges are written.
#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "common/csr.h"
#include "common/memory.h"
#include "common/parallel.h"

namespace seegera {
namespace {

using torch::stable::Tensor;

// Entries of a task.
constexpr int64_t kTaskEntries = int64_t{1} << 15;

template <typename T>
struct SelfLoops {
    const int64_t* rowptr;
    const int64_t* col;
    const T* values;
    int64_t rows;
    int64_t* new_rowptr;
    int64_t* new_col;
    T* new_values;
    int64_t* edge;
    int64_t* edges;  // [number of edges, 2]
};

// Writes all but the edge numbers below the diagonal. `before` are the numbers of edges before each row.
template <typename T>
void write_rows(const SelfLoops<T>& p, const int64_t* before, int64_t row_begin, int64_t row_end) {
    for (int64_t row = row_begin; row < row_end; ++row) {
        const int64_t begin = p.rowptr[row], end = p.rowptr[row + 1], above = end - (before[row + 1] - before[row]);
        const int64_t loop = above + row;
        std::copy(p.col + begin, p.col + above, p.new_col + begin + row);
        std::copy(p.values + begin, p.values + above, p.new_values + begin + row);
        p.new_col[loop] = row;
        p.new_values[loop] = 1;
        p.edge[loop] = -1;
        std::copy(p.col + above, p.col + end, p.new_col + loop + 1);
        std::copy(p.values + above, p.values + end, p.new_values + loop + 1);
        for (int64_t k = above; k < end; ++k) {
            const int64_t edge = before[row] + k - above;
            p.edge[k + row + 1] = edge;
            p.edges[2 * edge] = row;
            p.edges[2 * edge + 1] = p.col[k];
        }
        p.new_rowptr[row + 1] = end + row + 1;
    }
}

template <typename T>
void add(const Tensor& rowptr, const Tensor& col, const Tensor& values, Tensor& new_rowptr, Tensor& new_col,
         Tensor& new_values, Tensor& edge, Tensor& edges) {
    const SelfLoops<T> p = {rowptr.const_data_ptr<int64_t>(),
                            col.const_data_ptr<int64_t>(),
                            values.const_data_ptr<T>(),
                            rowptr.numel() - 1,
                            new_rowptr.mutable_data_ptr<int64_t>(),
                            new_col.mutable_data_ptr<int64_t>(),
                            new_values.mutable_data_ptr<T>(),
                            edge.mutable_data_ptr<int64_t>(),
                            edges.mutable_data_ptr<int64_t>()};
    const auto tasks = partition_rows(p.rowptr, p.rows, 1, 1, 1, kTaskEntries);
    const auto for_each_row_range = [&](const auto& run) {
        for_each_task(static_cast<int64_t>(tasks.size()),
                      [&](int64_t i) { run(tasks[i].row_begin, tasks[i].row_end); });
    };
    std::vector<int64_t> before(p.rows + 1);
    for_each_row_range([&](int64_t row_begin, int64_t row_end) {
        for (int64_t row = row_begin; row < row_end; ++row) {
            const int64_t* end = p.col + p.rowptr[row + 1];
            before[row + 1] = end - std::lower_bound(p.col + p.rowptr[row], end, row);
        }
    });
    for (int64_t row = 0; row < p.rows; ++row) {
        before[row + 1] += before[row];
    }
    STD_TORCH_CHECK(2 * before[p.rows] == col.numel(), "add_self_loops: got ", before[p.rows], " of ", col.numel(),
                    " entries above the diagonal, want half of them");
    p.new_rowptr[0] = 0;
    for_each_row_range([&](int64_t row_begin, int64_t row_end) { write_rows(p, before.data(), row_begin, row_end); });
    std::vector<int64_t> next(before);
    for (int64_t row = 0; row < p.rows; ++row) {
        const int64_t below = p.rowptr[row + 1] - (before[row + 1] - before[row]);
        for (int64_t k = p.rowptr[row]; k < below; ++k) {
            p.edge[k + row] = next[p.col[k]]++;
        }
    }
    for (int64_t row = 0; row < p.rows; ++row) {
        STD_TORCH_CHECK(next[row] == before[row + 1], "add_self_loops: got a matrix that is not symmetric at row ",
                        row);
    }
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> add_self_loops(const Tensor& rowptr, const Tensor& col,
                                                                  const Tensor& values) {
    const int64_t entries = col.numel() + rowptr.numel() - 1;
    Tensor new_rowptr = torch::stable::new_empty(rowptr, {rowptr.numel()});
    Tensor new_col = torch::stable::new_empty(col, {entries});
    Tensor new_values = torch::stable::new_empty(values, {entries});
    Tensor edge = torch::stable::new_empty(col, {entries});
    Tensor edges = torch::stable::new_empty(col, {col.numel() / 2, 2});
    if (is_double(values)) {
        add<double>(rowptr, col, values, new_rowptr, new_col, new_values, edge, edges);
    } else {
        add<float>(rowptr, col, values, new_rowptr, new_col, new_values, edge, edges);
    }
    return {new_rowptr, new_col, new_values, edge, edges};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("add_self_loops", TORCH_BOX(&seegera::add_self_loops)); }

#endif
