// Memory of results, for the registration half of a kernel file.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>

#include "isa.h"

namespace seegera {

// A tensor of the kind of `like`, on the CPU, that nothing has been written to yet.
//
// The memory of a large one comes from pages that earlier ones have left, where some are as large as it. The first
// touch of fresh memory costs a fault per page, as much time as writing the numbers, and a step needs the same sizes as
// the one before. What is kept and what is in use are at most one and a half times what was in use at a time before.
torch::stable::Tensor new_tensor(const torch::stable::Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef size);

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
