// Threads, for the registration half of a kernel file.
//
// What keeps results the same for any number of threads: the tasks are cut from the problem alone, never from the
// number of threads; a task writes what no other task writes; a sum over tasks is taken afterwards, in task order.
// Which thread runs which task, and when, is then free, and threads take the next task as they become idle.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace seegera {

// Calls run(task) for every task in [0, count), each once.
template <typename Run>
void for_each_task(int64_t count, const Run& run) {
    if (count == 1) {
        run(int64_t{0});
        return;
    }
    std::atomic<int64_t> next{0};
    const int64_t workers = std::min<int64_t>(torch::stable::get_num_threads(), count);
    // The range is ignored: a worker takes tasks until none are left. Inside another parallel region one call
    // gets all of [0, workers), and does all tasks.
    torch::stable::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
        for (int64_t task = next.fetch_add(1); task < count; task = next.fetch_add(1)) {
            run(task);
        }
    });
}

// Calls run(begin, end) for the pieces of [0, count) of `size` elements, at least 1, the last one shorter.
template <typename Run>
void for_each_range(int64_t count, int64_t size, const Run& run) {
    const int64_t step = std::max<int64_t>(1, size);
    for_each_task((count + step - 1) / step,
                  [&](int64_t task) { run(task * step, std::min(count, (task + 1) * step)); });
}

}  // namespace seegera
