// One product of dense matrices on the calling thread, by torch's BLAS or in bfloat16, for the registration half of a
// kernel file.
#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "bfloat16.h"
#include "isa.h"

// The products of torch's BLAS, null where it shows none. They compute in float32 whatever precision torch is set to,
// which its own product looks up. The numbers of 64 bits serve a BLAS that reads 32 as well, as the lower half is
// first.
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
extern "C" {
void sgemm_(const char*, const char*, const int64_t*, const int64_t*, const int64_t*, const float*, const float*,
            const int64_t*, const float*, const int64_t*, const float*, float*, const int64_t*) __attribute__((weak));
void dgemm_(const char*, const char*, const int64_t*, const int64_t*, const int64_t*, const double*, const double*,
            const int64_t*, const double*, const int64_t*, const double*, double*, const int64_t*)
    __attribute__((weak));
}
#endif

namespace seegera {

// A matrix in memory that somebody else owns. Strides in numbers; one of them is 1.
template <typename T>
struct Matrix {
    T* data;
    int64_t rows;
    int64_t columns;
    int64_t row_stride;
    int64_t column_stride;

    Matrix part(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) const {
        return {data + row_begin * row_stride + column_begin * column_stride, row_end - row_begin,
                column_end - column_begin, row_stride, column_stride};
    }
    Matrix row_range(int64_t begin, int64_t end) const { return part(begin, end, 0, columns); }
    Matrix flipped() const { return {data, columns, rows, column_stride, row_stride}; }
};

template <typename T>
Matrix<const T> as_const(const Matrix<T>& m) {
    return {m.data, m.rows, m.columns, m.row_stride, m.column_stride};
}

template <typename T>
Matrix<T> contiguous_matrix(T* data, int64_t rows, int64_t columns) {
    return {data, rows, columns, columns, 1};
}

// Memory of one thread.
template <typename T>
class Scratch {
 public:
    explicit Scratch(int64_t size) : memory_(new T[size + kLine]) {
        const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory_.get()) / sizeof(T)) % kLine;
        begin_ = memory_.get() + (beyond == 0 ? 0 : kLine - beyond);
    }
    T* get() const { return begin_; }

 private:
    static constexpr int64_t kLine = kLineBytes / sizeof(T);
    std::unique_ptr<T[]> memory_;
    T* begin_;
};

// How exactly products of float32 matrices are computed, by torch's names and in the order of
// seegera_fast/precision.py: in float32; as three products of two bfloat16 for each number; as one of bfloat16. Where
// this machine does not multiply bfloat16 faster, a precision is as the one before it.
enum class Precision : int64_t { highest, high, medium };

// While this object lives, the products of the calling thread have this precision, and those of on_every_thread.
class ProductsAt {
 public:
    explicit ProductsAt(Precision precision) : before_(current()) { current() = precision; }
    explicit ProductsAt(int64_t precision) : ProductsAt(static_cast<Precision>(precision)) {}
    ProductsAt(const ProductsAt&) = delete;
    ProductsAt& operator=(const ProductsAt&) = delete;
    ~ProductsAt() { current() = before_; }
    static Precision& current() {
        thread_local Precision precision = Precision::highest;
        return precision;
    }

 private:
    Precision before_;
};

template <typename T>
torch::stable::Tensor as_tensor(const Matrix<T>& m) {
    constexpr auto type =
        sizeof(T) == sizeof(float) ? torch::headeronly::ScalarType::Float : torch::headeronly::ScalarType::Double;
    return torch::stable::from_blob(const_cast<std::remove_const_t<T>*>(m.data), {m.rows, m.columns},
                                    {m.row_stride, m.column_stride},
                                    torch::stable::Device(torch::headeronly::DeviceType::CPU), type);
}

// One side of a product, as BLAS takes it: by columns, where a matrix by rows is its transpose.
template <typename T>
struct BlasSide {
    const T* data;
    char order;
    int64_t stride;

    explicit BlasSide(const Matrix<const T>& m)
        : data(m.data),
          order(m.column_stride == 1 ? 'N' : 'T'),
          stride(std::max({int64_t{1}, m.column_stride == 1 ? m.columns : m.rows,
                           m.column_stride == 1 ? m.row_stride : m.column_stride})) {}
};

// Whether the product was computed: torch's BLAS can be called.
template <typename T>
bool multiply_by_blas(const Matrix<T>& out, const Matrix<const T>& left, const Matrix<const T>& right, double beta,
                      double alpha) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const BlasSide<T> a(left), b(right);
    const T alpha_t = static_cast<T>(alpha), beta_t = static_cast<T>(beta);
    const int64_t stride = std::max(out.row_stride, std::max<int64_t>(1, out.columns));
    // out^T = right^T left^T
    if constexpr (sizeof(T) == sizeof(float)) {
        if (sgemm_ != nullptr) {
            sgemm_(&b.order, &a.order, &out.columns, &out.rows, &left.columns, &alpha_t, b.data, &b.stride, a.data,
                   &a.stride, &beta_t, out.data, &stride);
            return true;
        }
    } else if (dgemm_ != nullptr) {
        dgemm_(&b.order, &a.order, &out.columns, &out.rows, &left.columns, &alpha_t, b.data, &b.stride, a.data,
               &a.stride, &beta_t, out.data, &stride);
        return true;
    }
#endif
    return false;
}

// out = beta out + alpha left @ right, with the numbers as they are; out is not read where beta is 0.
template <typename T>
void multiply_exactly(const Matrix<T>& out, const Matrix<const T>& left, const Matrix<const T>& right, double beta,
                      double alpha) {
    if (multiply_by_blas(out, left, right, beta, alpha)) {
        return;
    }
    const torch::stable::Tensor to = as_tensor(out), a = as_tensor(left), b = as_tensor(right);
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(to.get(), to.get(), a.get(), b.get(), beta, alpha));
}

// One side of a product in bfloat16, for MKL.
class RoundedSide {
 public:
    // Whether all numbers are finite, where with_rest is set.
    bool set(const Matrix<const float>& m, bool with_rest) {
        flipped_ = m.column_stride != 1;
        const Matrix<const float> lines = flipped_ ? m.flipped() : m;
        const int64_t size = lines.rows * lines.columns;
        numbers_.resize(with_rest ? 2 * size : size);
        stride_ = static_cast<int>(std::max<int64_t>(1, lines.columns));
        rest_ = with_rest ? numbers_.data() + size : nullptr;
        return SEEGERA_CHOOSE(round_lines)(lines.data, lines.rows, lines.columns, lines.row_stride, numbers_.data(),
                                           rest_);
    }
    const uint16_t* nearest() const { return numbers_.data(); }
    const uint16_t* rest() const { return rest_; }
    int stride() const { return stride_; }
    int order() const { return flipped_ ? kTransposed : kAsIs; }

 private:
    static constexpr int kAsIs = 111, kTransposed = 112;  // of CBLAS

    std::vector<uint16_t> numbers_;
    uint16_t* rest_ = nullptr;
    int stride_ = 1;
    bool flipped_ = false;
};

// out = beta out + alpha left @ right by MKL, in one product or, for `high`, in three.
inline void multiply_by_mkl(const Matrix<float>& out, const Matrix<const float>& left, const Matrix<const float>& right,
                            double beta, double alpha, bool high) {
    constexpr int by_rows = 101;
    constexpr int64_t most_depth = 2048;  // what is rounded at a time stays in the cache
    thread_local RoundedSide first, second;
    double factor = beta;
    for (int64_t begin = 0; begin < left.columns || begin == 0; begin += most_depth) {
        const int64_t end = std::min(left.columns, begin + most_depth);
        const Matrix<const float> ours = left.part(0, left.rows, begin, end), theirs = right.row_range(begin, end);
        const bool first_finite = first.set(ours, high), second_finite = second.set(theirs, high);
        if (high && !(first_finite && second_finite)) {
            // What is left over of an infinite number is NaN, and of a zero an infinite one makes NaN.
            multiply_exactly(out, ours, theirs, factor, alpha);
            factor = 1;
            continue;
        }
        const auto add = [&](const uint16_t* a, const uint16_t* b) {
            cblas_gemm_bf16bf16f32(by_rows, first.order(), second.order(), static_cast<int>(out.rows),
                                   static_cast<int>(out.columns), static_cast<int>(end - begin),
                                   static_cast<float>(alpha), a, first.stride(), b, second.stride(),
                                   static_cast<float>(factor), out.data, static_cast<int>(out.row_stride));
            factor = 1;
        };
        add(first.nearest(), second.nearest());
        if (high) {
            add(first.nearest(), second.rest());
            add(first.rest(), second.nearest());
        }
    }
}

// Whether the product was computed in bfloat16.
inline bool multiply_rounded(const Matrix<float>& out, const Matrix<const float>& left,
                             const Matrix<const float>& right, double beta, double alpha) {
    const Precision precision = ProductsAt::current();
    if (precision == Precision::highest || out.rows == 0 || out.columns == 0) {
        return false;
    }
    if (bfloat16() == Bfloat16::mkl) {
        multiply_by_mkl(out, left, right, beta, alpha, precision == Precision::high);
        return true;
    }
    if (bfloat16() == Bfloat16::none || precision == Precision::high || !(beta == 0 || beta == 1)) {
        return false;
    }
    thread_local const Scratch<uint32_t> left_pairs(kLeftPairs), right_pairs(kRightPairs);
    SEEGERA_CHOOSE(multiply_bfloat16)
    ({out.rows,
      left.columns,
      out.columns,
      {left.data, left.row_stride, left.column_stride},
      {right.data, right.row_stride, right.column_stride},
      static_cast<float>(alpha),
      beta == 1,
      out.data,
      out.row_stride},
     left_pairs.get(), right_pairs.get());
    return true;
}

// out = beta out + alpha left @ right; out is not read where beta is 0.
template <typename T>
void multiply(const Matrix<T>& out, const Matrix<const T>& left, const Matrix<const T>& right, double beta = 0,
              double alpha = 1) {
    if constexpr (sizeof(T) == sizeof(float)) {
        if (multiply_rounded(out, left, right, beta, alpha)) {
            return;
        }
    }
    multiply_exactly(out, left, right, beta, alpha);
}

}  // namespace seegera
