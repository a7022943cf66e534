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

#ifdef SEEGERA_OWN_THREADS
#include <exception>
#include <thread>
#include <vector>
#endif

namespace seegera {

// The number of threads that share the tasks. A build for ThreadSanitizer sets SEEGERA_OWN_THREADS, the number of
// threads that it starts itself.
inline int64_t num_threads() {
#ifdef SEEGERA_OWN_THREADS
    return SEEGERA_OWN_THREADS;
#else
    return torch::stable::get_num_threads();
#endif
}

// Calls work(next) on each of `threads` threads. next() counts the tasks up, and no two calls give the same one.
template <typename Work>
void on_threads(int64_t threads, const Work& work) {
#ifdef SEEGERA_OWN_THREADS
    // ThreadSanitizer takes what OpenMP orders for a race, but knows what std::thread orders. The tasks are dealt in
    // turn, so that which threads share them does not depend on how busy the machine is.
    std::vector<std::thread> started;
    std::vector<std::exception_ptr> errors(threads);
    for (int64_t thread = 0; thread < threads; ++thread) {
        started.emplace_back([&, thread] {
            try {
                int64_t task = thread - threads;
                work([&] { return task += threads; });
            } catch (...) {
                errors[thread] = std::current_exception();
            }
        });
    }
    for (std::thread& each : started) {
        each.join();
    }
    for (const std::exception_ptr& error : errors) {
        if (error) {
            std::rethrow_exception(error);
        }
    }
#else
    std::atomic<int64_t> counter{0};
    // The range is ignored: a thread takes tasks until none are left. Inside another parallel region one call gets
    // the whole range, and does all tasks.
    torch::stable::parallel_for(0, threads, 1, [&](int64_t, int64_t) { work([&] { return counter.fetch_add(1); }); });
#endif
}

// Calls run(task) for every task in [0, count), each once.
template <typename Run>
void for_each_task(int64_t count, const Run& run) {
    if (count == 1) {
        run(int64_t{0});
        return;
    }
    on_threads(std::min(num_threads(), count), [&](const auto& next) {
        for (int64_t task = next(); task < count; task = next()) {
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
