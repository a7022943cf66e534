// Memory of large results, for the registration half of a kernel file.
#pragma once

#include <torch/csrc/stable/tensor.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>

#include "isa.h"

namespace seegera {

// Asks for huge pages under a large tensor that nothing has been written to yet. The first touch of fresh memory costs
// a fault per page: with pages of 4 kB that takes several times as long as writing the results. Only a request: where
// the system has none to give, nothing changes.
inline void expect_large(torch::stable::Tensor& tensor) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t page = uintptr_t{1} << 21;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr());
    const uintptr_t end = begin + tensor.numel() * tensor.element_size();
    const uintptr_t first = (begin + page - 1) / page * page;
    const uintptr_t last = end / page * page;
    if (last > first) {
        madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
    }
#endif
}

inline bool is_double(const torch::stable::Tensor& tensor) {
    return tensor.scalar_type() == torch::headeronly::ScalarType::Double;
}

// Whether a result is so large that no cache will hold it until it is read.
inline bool beyond_caches(const torch::stable::Tensor& tensor) {
    constexpr int64_t bytes = int64_t{1} << 25;
    return tensor.numel() * static_cast<int64_t>(tensor.element_size()) >= bytes;
}

// Whether all lines along the last dimension of a contiguous tensor are aligned to cache lines.
inline bool lines_aligned(const torch::stable::Tensor& tensor) {
    const int64_t size = tensor.size(tensor.dim() - 1) * static_cast<int64_t>(tensor.element_size());
    return size % kLineBytes == 0 && reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kLineBytes == 0;
}

}  // namespace seegera
