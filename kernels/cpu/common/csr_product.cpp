// The product of a matrix in compressed rows with a dense one, and what other operations do to its rows while they are
// in registers.
#ifndef SEEGERA_REGISTER

#include "csr_product.h"

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
    end_rows(result);
}

template void multiply_rows(const CsrProduct<float>&, const Finish<float>&, const ProductRows<float>&, int64_t, int64_t,
                            int64_t, int64_t);
template void multiply_rows(const CsrProduct<double>&, const Finish<double>&, const ProductRows<double>&, int64_t,
                            int64_t, int64_t, int64_t);

}  // namespace SEEGERA_ISA
}  // namespace seegera

#endif
