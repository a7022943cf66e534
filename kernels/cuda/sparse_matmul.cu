// matrix @ dense for a CSR matrix: out[r, :] = sum over the non-zeros e of row r of values[e] * dense[col[e], :].
// The kernels: common/products.cuh.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>

#include "common/launch.cuh"
#include "common/products.cuh"

namespace seegera::cuda {
namespace {

using torch::stable::Tensor;

template <typename T>
Tensor product(const CsrTensors& matrix, const Tensor& dense) {
    return multiply<T>(Launcher(dense), matrix, {dense.const_data_ptr<T>(), dense.stride(0), dense.size(1)});
}

// matrix: rows x cols in CSR; its transpose is for the backward pass, which calls this operator with the two exchanged.
// dense: [cols, width], float32 or float64 like the values, any strides. Returns [rows, width], contiguous.
Tensor sparse_matmul(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor& /*rowptr_t*/,
                     const Tensor& /*col_t*/, const Tensor& /*values_t*/, const Tensor& dense) {
    const bool wide = dense.scalar_type() == torch::headeronly::ScalarType::Double;
    const Tensor source = dense.size(1) > 1 && dense.stride(1) != 1 ? torch::stable::contiguous(dense) : dense;
    return (wide ? product<double> : product<float>)({rowptr, col, values}, source);
}

}  // namespace
}  // namespace seegera::cuda

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CUDA, m) { m.impl("sparse_matmul", TORCH_BOX(&seegera::cuda::sparse_matmul)); }
