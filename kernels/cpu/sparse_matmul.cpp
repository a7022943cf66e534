// out [rows, w] = matrix [rows, cols] @ dense [cols, w], float32 or float64.
//
// Floor: see common/csr_product.h. Of a matrix in the dense layout, 2 rows cols w operations at the rate of the BLAS.
#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "common/layer.h"

namespace seegera {
namespace {

template <typename T>
Matrix<const T> by_rows(const Tensor& dense) {
    return {dense.const_data_ptr<T>(), dense.size(0), dense.size(1), dense.stride(0), 1};
}

// The transpose serves the backward pass, which is this operation again, called from Python.
Tensor sparse_matmul(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor&, const Tensor&,
                     const Tensor&, const Tensor& dense) {
    const int64_t width = dense.size(1);
    // The BLAS, which multiplies a matrix in full, takes no rows that overlap, as those of an expanded tensor do.
    const bool apart = values.dim() == 1 || dense.size(0) <= 1 || dense.stride(0) >= std::max<int64_t>(width, 1);
    const bool contiguous_rows = width <= 1 || dense.stride(1) == 1;
    const Tensor rows = contiguous_rows && apart ? dense : torch::stable::contiguous(dense);
    const Operand matrix{rowptr, col, values};
    Tensor out = new_tensor(dense, {matrix.rows(), width});
    if (values.scalar_type() == ScalarType::Double) {
        multiply_operand<double>(matrix, by_rows<double>(rows), {}, out.mutable_data_ptr<double>());
    } else {
        multiply_operand<float>(matrix, by_rows<float>(rows), {}, out.mutable_data_ptr<float>());
    }
    return out;
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("sparse_matmul", TORCH_BOX(&seegera::sparse_matmul)); }

#endif
