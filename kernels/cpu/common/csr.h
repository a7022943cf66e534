// Sparse matrices in compressed rows, for the registration half of a kernel file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace seegera {

// Rows [row_begin, row_end) and dense columns [column_begin, column_end) of a product.
struct CsrTask {
    int64_t row_begin;
    int64_t row_end;
    int64_t column_begin;
    int64_t column_end;
};

// Cuts the product of a CSR matrix with a dense one of `columns` columns into tasks of about `task_cost`
// multiply-adds: slices of `slice` columns one after the other, and in each the rows in their order. A row costs
// its non-zeros, and one more for writing it. A row that alone costs more than a task (a hub) is cut along the columns,
// at multiples of `step`, because its non-zeros must be summed in their order. The tasks depend on the problem only,
// never on the number of threads.
inline std::vector<CsrTask> partition_rows(const int64_t* rowptr, int64_t rows, int64_t columns, int64_t slice,
                                           int64_t step, int64_t task_cost) {
    std::vector<CsrTask> tasks;
    const auto cost_before = [&](int64_t row) { return rowptr[row] - rowptr[0] + row; };
    for (int64_t begin = 0, end = 0; begin < columns; begin = end) {
        end = std::min(columns, begin + slice);
        const int64_t row_limit = std::max<int64_t>(1, task_cost / (end - begin));
        for (int64_t row = 0; row < rows;) {
            // The last row that still fits, by bisection: the cost grows with the row.
            const int64_t limit = cost_before(row) + row_limit;
            int64_t last = row;
            for (int64_t beyond = rows + 1; last + 1 < beyond;) {
                const int64_t middle = last + (beyond - last) / 2;
                (cost_before(middle) <= limit ? last : beyond) = middle;
            }
            if (last > row) {
                tasks.push_back({row, last, begin, end});
                row = last;
                continue;
            }
            const int64_t parts = (cost_before(row + 1) - cost_before(row) + row_limit - 1) / row_limit;
            const int64_t steps = (end - begin + step - 1) / step;
            const int64_t width = (steps + parts - 1) / parts * step;
            for (int64_t column = begin; column < end; column += width) {
                tasks.push_back({row, row + 1, column, std::min(end, column + width)});
            }
            ++row;
        }
    }
    return tasks;
}

}  // namespace seegera
