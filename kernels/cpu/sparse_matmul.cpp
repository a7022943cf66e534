// out [rows, w] = matrix [rows, cols] @ dense [cols, w], float32 or float64, and what other operations do to its rows
// while they are in registers.
//
// Floor: see common/csr_product.h. Of a matrix in the dense layout, 2 rows cols w operations at the rate of the BLAS.
#include "common/csr_product.h"

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
void multiply_rows(const CsrProduct<T>& p, const Finish<T>& finish, const ProductRows<T>& result, int64_t row_begin,
                   int64_t row_end, int64_t column_begin, int64_t column_end) {
    for_each_product_block(p, row_begin, row_end, column_begin, column_end, [&](int64_t row, auto block, auto& sum) {
        if (finish.bias != nullptr) {
            block.add(T(1), finish.bias, sum);
        }
        activate(finish.activation, sum);
        block.put(sum, result, row);
    });
    if (result.past_caches) {
        stream_fence();
    }
}

template void multiply_rows(const CsrProduct<float>&, const Finish<float>&, const ProductRows<float>&, int64_t, int64_t,
                            int64_t, int64_t);
template void multiply_rows(const CsrProduct<double>&, const Finish<double>&, const ProductRows<double>&, int64_t,
                            int64_t, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>

#include "common/layer.h"

namespace seegera {
namespace {

// The transpose serves the backward pass, which is this operation again, called from Python.
Tensor sparse_matmul(const Tensor& rowptr, const Tensor& col, const Tensor& values, const Tensor&, const Tensor&,
                     const Tensor&, const Tensor& dense) {
    const int64_t width = dense.size(1);
    const bool contiguous_rows = width <= 1 || dense.stride(1) == 1;
    const Tensor rows = contiguous_rows ? dense : torch::stable::contiguous(dense);
    const Operand matrix{rowptr, col, values};
    Tensor out = new_tensor(dense, {matrix.rows(), width});
    if (values.scalar_type() == ScalarType::Double) {
        multiply_operand<double>(matrix, rows.const_data_ptr<double>(), rows.stride(0), width, {},
                                 out.mutable_data_ptr<double>());
    } else {
        multiply_operand<float>(matrix, rows.const_data_ptr<float>(), rows.stride(0), width, {},
                                out.mutable_data_ptr<float>());
    }
    return out;
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("sparse_matmul", TORCH_BOX(&seegera::sparse_matmul)); }

#endif
