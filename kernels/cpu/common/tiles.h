// How threads share the tiles of a product, for the registration half of a kernel file: the blocks of rows and of
// columns that bound the tiles, and the turns in which tiles add to what they have in common.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "isa.h"

namespace seegera {

// [0, total) in `count` blocks of about equal size. They begin at multiples of kUnit.
class Blocks {
 public:
    Blocks(int64_t total, int64_t count) : total_(total), units_((total + kUnit - 1) / kUnit), count_(count) {}
    // As few as keep each within `size`, a multiple of kUnit.
    static Blocks of_at_most(int64_t total, int64_t size) { return {total, (total + size - 1) / size}; }

    int64_t total() const { return total_; }
    int64_t count() const { return count_; }
    int64_t begin(int64_t block) const { return std::min(total_, block * units_ / count_ * kUnit); }
    int64_t size(int64_t block) const { return begin(block + 1) - begin(block); }
    // A multiple of kUnit that no block exceeds.
    int64_t largest() const { return count_ == 0 ? 0 : (units_ + count_ - 1) / count_ * kUnit; }

 private:
    int64_t total_;
    int64_t units_;
    int64_t count_;
};

// Counts the turns of items that only one task at a time may touch. Where tasks begin in the order of their turns, a
// task waits only for others that are done or running.
class Turns {
 public:
    explicit Turns(int64_t count) : done_(new std::atomic<int64_t>[count]()) {}
    // False where an earlier task failed, whose turn never ends.
    bool wait(int64_t index, int64_t turn) const {
        while (done_[index].load(std::memory_order_acquire) < turn) {
            if (failed_.load()) {
                return false;
            }
            std::this_thread::yield();
        }
        return true;
    }
    void end(int64_t index) { done_[index].fetch_add(1, std::memory_order_release); }
    void fail() { failed_.store(true); }

 private:
    std::unique_ptr<std::atomic<int64_t>[]> done_;
    std::atomic<bool> failed_{false};
};

}  // namespace seegera
