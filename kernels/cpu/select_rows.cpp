// Some rows of a sparse matrix, one after the other: whole rows are copied. Floor: column and value of each entry are
// read and written once.
#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "common/chosen_rows.h"
#include "common/memory.h"
#include "common/parallel.h"

namespace seegera {
namespace {

using torch::stable::Tensor;

// Entries of a task.
constexpr int64_t kTaskEntries = int64_t{1} << 15;

template <typename T>
void copy_rows(const ChosenRows& chosen, const Tensor& col, const Tensor& values, const int64_t* new_rowptr,
               Tensor& new_col, Tensor& new_values) {
    const int64_t* columns = col.const_data_ptr<int64_t>();
    const T* numbers = values.const_data_ptr<T>();
    int64_t* to_columns = new_col.mutable_data_ptr<int64_t>();
    T* to_numbers = new_values.mutable_data_ptr<T>();
    const std::vector<int64_t> starts = chosen.tasks(kTaskEntries);
    for_each_task(static_cast<int64_t>(starts.size()) - 1, [&](int64_t task) {
        for (int64_t at = starts[task]; at < starts[task + 1]; ++at) {
            chosen.prefetch(columns, at);
            chosen.prefetch(numbers, at);
            const int64_t from = chosen.begin(at), size = chosen.size(at);
            std::copy_n(columns + from, size, to_columns + new_rowptr[at]);
            std::copy_n(numbers + from, size, to_numbers + new_rowptr[at]);
        }
    });
}

std::tuple<Tensor, Tensor, Tensor> select_rows(const Tensor& rowptr, const Tensor& col, const Tensor& values,
                                               const Tensor& rows) {
    const ChosenRows chosen = {rowptr.const_data_ptr<int64_t>(), rows.const_data_ptr<int64_t>(), rows.numel()};
    check_rows("select_rows", chosen.rows, chosen.count, rowptr.numel() - 1);
    Tensor new_rowptr = torch::stable::new_empty(rowptr, {chosen.count + 1});
    int64_t* ends = new_rowptr.mutable_data_ptr<int64_t>();
    ends[0] = 0;
    for (int64_t at = 0; at < chosen.count; ++at) {
        ends[at + 1] = ends[at] + chosen.size(at);
    }
    Tensor new_col = torch::stable::new_empty(col, {ends[chosen.count]});
    Tensor new_values = torch::stable::new_empty(values, {ends[chosen.count]});
    if (is_double(values)) {
        copy_rows<double>(chosen, col, values, ends, new_col, new_values);
    } else {
        copy_rows<float>(chosen, col, values, ends, new_col, new_values);
    }
    return {new_rowptr, new_col, new_values};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("select_rows", TORCH_BOX(&seegera::select_rows)); }

#endif
