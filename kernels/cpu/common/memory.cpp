// Pages of large results, kept for the next ones.
#ifdef SEEGERA_REGISTER

#include "memory.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sys/mman.h>
#endif

namespace seegera {
namespace {

using torch::stable::Tensor;

// Smaller tensors are torch's: malloc keeps their memory.
constexpr size_t kFewestBytes = size_t{1} << 20;

#if defined(__linux__) && !defined(SEEGERA_FRESH_MEMORY)

constexpr size_t kPage = size_t{1} << 12, kHugePage = size_t{1} << 21;

// Fresh pages, or null. Huge ones are asked for: where the system has none to give, nothing changes.
void* new_pages(size_t bytes) {
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return nullptr;
    }
#if defined(MADV_HUGEPAGE)
    const uintptr_t begin = reinterpret_cast<uintptr_t>(pages);
    const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t last = (begin + bytes) / kHugePage * kHugePage;
    if (last > first) {
        madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
    }
#endif
    return pages;
}

class KeptMemory {
 public:
    // It lives as long as the process, since tensors may end after everything else.
    static KeptMemory& the() {
        static KeptMemory* const memory = shared_with_forks();
        return *memory;
    }

    // Null where there is no memory.
    void* take(size_t wanted) {
        const std::lock_guard<std::mutex> lock(mutex_);
        size_t bytes = (wanted + kPage - 1) / kPage * kPage;
        // The smallest block that is large enough, and not a quarter too large; of equal ones the last one, which the
        // caches may hold.
        auto best = free_.end();
        for (auto block = free_.begin(); block != free_.end(); ++block) {
            if (block->bytes >= bytes && block->bytes <= bytes + bytes / 4 &&
                (best == free_.end() || block->bytes <= best->bytes)) {
                best = block;
            }
        }
        void* pages;
        if (best != free_.end()) {
            pages = best->pages, bytes = best->bytes;
            kept_ -= bytes;
            free_.erase(best);
        } else {
            while (!free_.empty() && used_ + kept_ + bytes > most_used_ + most_used_ / 2) {
                drop_oldest();
            }
            pages = new_pages(bytes);
            if (pages == nullptr) {
                drop_all();
                pages = new_pages(bytes);
            }
            if (pages == nullptr) {
                return nullptr;
            }
        }
        size_of_[pages] = bytes;
        used_ += bytes;
        most_used_ = std::max(most_used_, used_);
        return pages;
    }

    void give(void* pages) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = size_of_.find(pages);
        const size_t bytes = found->second;
        size_of_.erase(found);
        used_ -= bytes;
        kept_ += bytes;
        free_.push_back({pages, bytes});
    }

    // Gives back to the system what is not in use, and keeps less from now on.
    void release() {
        const std::lock_guard<std::mutex> lock(mutex_);
        drop_all();
        most_used_ = used_;
    }

    size_t kept() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return kept_;
    }

 private:
    struct Block {
        void* pages;
        size_t bytes;
    };

    // A process that is forked while another thread holds the mutex would wait for that thread, which it does not have.
    static KeptMemory* shared_with_forks() {
        static KeptMemory* memory;
        memory = new KeptMemory;
        pthread_atfork([] { memory->mutex_.lock(); }, [] { memory->mutex_.unlock(); }, [] { memory->mutex_.unlock(); });
        return memory;
    }

    void drop_oldest() {
        const Block block = free_.front();
        free_.pop_front();
        kept_ -= block.bytes;
        munmap(block.pages, block.bytes);
    }
    void drop_all() {
        while (!free_.empty()) {
            drop_oldest();
        }
    }

    std::mutex mutex_;
    std::list<Block> free_;  // the last one was left last
    std::unordered_map<void*, size_t> size_of_;
    size_t used_ = 0, kept_ = 0, most_used_ = 0;
};

void* take(size_t bytes) { return KeptMemory::the().take(bytes); }
void give(void* pages) { KeptMemory::the().give(pages); }
void release() { KeptMemory::the().release(); }
size_t kept() { return KeptMemory::the().kept(); }

#else

// Sanitizers watch what malloc gives.
void* take(size_t) { return nullptr; }
void give(void*) {}
void release() {}
size_t kept() { return 0; }

#endif

// PyTorch's own message, which names its allocator and the bytes, does not come through its stable interface.
Tensor empty(const Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef size, size_t bytes) {
    try {
        return torch::stable::new_empty(like, size);
    } catch (const std::exception&) {
        throw std::runtime_error("not enough memory: a result of an operation takes " + std::to_string(bytes) +
                                 " bytes");
    }
}

}  // namespace

Tensor new_tensor(const Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef size) {
    size_t count = 1;
    for (const int64_t each : size) {
        count *= static_cast<size_t>(each);
    }
    const size_t bytes = count * like.element_size();
    if (bytes < kFewestBytes) {
        return empty(like, size, bytes);
    }
    void* pages = take(bytes);
    if (pages == nullptr) {
        return empty(like, size, bytes);
    }
    std::vector<int64_t> strides(size.size());
    int64_t stride = 1;
    for (size_t d = size.size(); d-- > 0;) {
        strides[d] = stride;
        stride *= std::max<int64_t>(1, size[d]);
    }
    try {
        return torch::stable::from_blob(pages, size, strides, like.device(), like.scalar_type(), &give);
    } catch (...) {
        give(pages);
        throw;
    }
}

}  // namespace seegera

// Gives back to the system the memory of results that are no more.
extern "C" __attribute__((visibility("default"))) void seegera_release_memory() { seegera::release(); }

// Bytes of it: for tests.
extern "C" __attribute__((visibility("default"))) int64_t seegera_kept_memory() {
    return static_cast<int64_t>(seegera::kept());
}

#endif
